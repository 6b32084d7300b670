"""JSON over HTTP with the standard library: a server made of functions, and one who asks it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

MOST_BYTES = 4 << 20  # of a request
Answer = dict[str, Any]


class Refused(Exception):
    """What the one who asks should hear, with an HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Server(ThreadingHTTPServer):
    """Answers "GET /path" and "POST /path" by calling `ways` with what was asked, a JSON object."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str, port: int, ways: dict[str, Callable[[Answer], Answer]]) -> None:
        super().__init__((host, port), _Handler)
        self.ways = ways

    @property
    def address(self) -> str:
        return "http://{}:{}".format(*self.server_address[:2])

    def start(self) -> Server:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    timeout = 120

    def do_GET(self) -> None:
        self.reply(f"GET {self.path}", {})

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > MOST_BYTES:
            self.close_connection = True
            return self.send(
                413, {"error": f"a request has a length, and at most {MOST_BYTES} bytes"}
            )
        try:
            asked = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            asked = None
        if not isinstance(asked, dict):
            return self.send(400, {"error": "what is asked is a JSON object"})
        self.reply(f"POST {self.path}", asked)

    def reply(self, way: str, asked: Answer) -> None:
        if way not in self.server.ways:
            return self.send(404, {"error": f"there is {', '.join(self.server.ways)}"})
        try:
            self.send(200, self.server.ways[way](asked))
        except Refused as refused:
            self.send(refused.status, {"error": str(refused)})

    def send(self, status: int, answer: Answer) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass  # hundreds of requests a second are no news


class Asker:
    """One who asks a server, over a connection that is kept; a server that is away is awaited."""

    def __init__(self, address: str, patience: float = 60) -> None:
        place = urlsplit(address)
        if place.scheme != "http" or not place.hostname:
            raise SystemExit(f"{address!r} is no address like http://127.0.0.1:8300")
        self.address = address
        self.patience = patience
        self.line = HTTPConnection(place.hostname, place.port, timeout=90)

    def __call__(self, path: str, asked: Answer | None = None) -> Answer:
        """GET without `asked`, else POST. Refused when the server refuses."""
        end = time.monotonic() + self.patience
        while True:
            try:
                self.line.request(
                    "GET" if asked is None else "POST",
                    path,
                    None if asked is None else json.dumps(asked),
                )
                reply = self.line.getresponse()
                answer = json.loads(reply.read())
                break
            except (OSError, HTTPException) as error:
                self.line.close()
                if time.monotonic() > end:
                    raise SystemExit(f"{self.address} does not answer: {error}") from None
                time.sleep(0.2)
        if reply.status != 200:
            raise Refused(reply.status, answer.get("error", "no reason given"))
        return answer
