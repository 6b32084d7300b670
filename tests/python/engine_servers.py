"""Servers as vLLM shows itself over HTTP, scripted: real HTTP, no weights."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class ScriptedVllm:
    """A vLLM server with wisp's routes; `acts` is what it was told, in order.

    Unless it is `listening` it refuses connections until listen(), and holds its port meanwhile.
    """

    def __init__(self, port=0, listening=True, host="127.0.0.1"):
        self.served = None
        self.run = None
        self.info = None  #: of the last init
        self.forbids = None  #: why no init is taken
        self.acts = []
        self.keys = set()
        self.refusal = None  #: (status, text) of the next updates
        self._http = ThreadingHTTPServer((host, port), self._handler(),
                                         bind_and_activate=False)
        self._http.daemon_threads = True
        self._http.server_bind()
        self._thread = None
        if listening:
            self.listen()

    def listen(self):
        self._http.server_activate()
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def port(self):
        return self._http.server_address[1]

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def close(self):
        if self._thread:
            self._http.shutdown()
            self._thread.join()
        self._http.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def answer(self, method, path, body):
        """(status, JSON)"""
        if (method, path) == ("GET", "/wisp/status"):
            return 200, {"run": self.run, "initialized": self.run is not None,
                         "served": self.served, "faults": []}
        self.acts.append(path)
        if (method, path) == ("POST", "/wisp/init"):
            if self.forbids:
                return 403, {"error": self.forbids}
            self.info = body["init_info"]
            self.run = self.info["run"]
            return 200, {}
        if (method, path) == ("POST", "/wisp/update"):
            if self.refusal:
                return self.refusal[0], {"error": self.refusal[1]}
            if self.served == body["step"]:
                return 200, {"served": self.served, "pause_seconds": 0.0, "phases": {}}
            self.served = body["step"]
            return 200, {"served": self.served, "pause_seconds": 0.004,
                         "phases": {"staged": 0.5, "applied": 0.003}}
        return 404, {"detail": "Not Found"}

    def _handler(self):
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.0"  # a connection each: none outlives close()

            def _do(self):
                server.keys.add(self.headers.get("Authorization"))
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size) or b"null")
                status, answer = server.answer(self.command, self.path, body)
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = _do

            def log_message(self, *_):
                pass

        return Handler
