"""A bucket in memory that takes its time: each request waits, bodies travel at a given speed.

It knows just enough of S3 for wisp, believes every signature, and keeps when each request was under way.
"""

import hashlib
import re
import socket
import threading
import time
import urllib.parse
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.sax.saxutils import escape


class SlowS3(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Request)
        self.objects = {}
        self.lock = threading.Lock()
        self.delay = 0.0
        self.bytes_per_second = None
        self.under_way = []  # (begun, ended) of each request
        self.mute = None  # writes of what has this in its name get no answer
        self.silent = False  # nothing gets an answer that is worth one
        self.denies = False  # everything, as with credentials that have expired
        self.looks_first = False  # and writes later, which takes it long when the object is large

    def server_bind(self):
        # What the system takes in ahead of the server is sent, to the eyes of a client.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        super().server_bind()

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()

    def environment(self):
        endpoint = f"http://127.0.0.1:{self.server_port}"
        return {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1",
                "AWS_ENDPOINT_URL": endpoint, "AWS_ENDPOINT_URL_S3": endpoint, "AWS_SESSION_TOKEN": "",
                "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/dev/null",
                "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_PROFILE": ""}

    def rounds(self):
        """How many requests came one after the other: the longest row of those that do not overlap."""
        count, free_from = 0, 0.0
        for begun, ended in sorted(self.under_way, key=lambda span: span[1]):
            if begun >= free_from:
                count, free_from = count + 1, ended
        return count


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: SlowS3

    def log_message(self, *_):
        pass

    def _paced(self, size, move):
        """Calls move(begin, end) for all of it, as fast as the server may."""
        speed = self.server.bytes_per_second
        step = size if not speed else max(speed // 20, 1)
        for begin in range(0, size, max(step, 1)):
            move(begin, min(begin + step, size))
            if speed:
                time.sleep(min(step, size - begin) / speed)

    def _answer(self, status, body=b"", headers=()):
        self.send_response_only(status)
        for name, value in (("Date", formatdate(usegmt=True)), ("Content-Length", len(body)), *headers):
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self._paced(len(body), lambda begin, end: self.wfile.write(body[begin:end]))

    def _handle(self):
        begun = time.monotonic()
        path, _, query = self.path.partition("?")
        key = urllib.parse.unquote(path).lstrip("/").partition("/")[2]
        received = bytearray()
        self._paced(int(self.headers.get("Content-Length") or 0),
                    lambda begin, end: received.extend(self.rfile.read(end - begin)))
        time.sleep(self.server.delay)
        if self.server.silent or self.server.mute and self.command == "PUT" and self.server.mute in key:
            return self._answer(503)
        if self.server.denies:
            return self._answer(403, b"<Error><Code>ExpiredToken</Code></Error>")
        self._serve(key, dict(urllib.parse.parse_qsl(query, keep_blank_values=True)), bytes(received))
        with self.server.lock:
            self.server.under_way.append((begun, time.monotonic()))

    do_GET = do_PUT = do_HEAD = do_DELETE = _handle

    def _serve(self, key, query, received):
        objects = self.server.objects
        if not key:
            return self._list(query) if "list-type" in query else self._answer(200)
        if self.command == "PUT":
            with self.server.lock:
                if self.headers.get("If-None-Match") == "*" and key in objects:
                    return self._answer(412)
                if not self.server.looks_first or len(received) < 16_000_000:
                    objects[key] = (received, time.time())
            if key not in objects:
                time.sleep(1)
                objects[key] = (received, time.time())
            return self._answer(200, headers=[("ETag", f'"{hashlib.md5(received).hexdigest()}"')])
        if self.command == "DELETE":
            objects.pop(key, None)
            return self._answer(204)
        if key not in objects:
            return self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        body, modified = objects[key]
        about = [("Last-Modified", formatdate(modified, usegmt=True)), ("ETag", f'"{hashlib.md5(body).hexdigest()}"')]
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        if not asked:
            return self._answer(200, body, about)
        first, last = int(asked[1]), min(int(asked[2]), len(body) - 1)
        if first >= len(body):
            return self._answer(416, b"", [("Content-Range", f"bytes */{len(body)}")])
        return self._answer(206, body[first:last + 1],
                            [*about, ("Content-Range", f"bytes {first}-{last}/{len(body)}")])

    def _list(self, query):
        after = query.get("start-after") or query.get("continuation-token") or ""
        found = sorted(key for key in list(self.server.objects)
                       if key.startswith(query.get("prefix", "")) and key > after)
        page = found[:int(query.get("max-keys") or 1000)]
        more = len(found) > len(page)
        lines = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.server.objects[key][0])}</Size><LastModified>"
            f"{time.strftime('%Y-%m-%dT%H:%M:%S.000Z', time.gmtime(self.server.objects[key][1]))}"
            "</LastModified></Contents>" for key in page)
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        self._answer(200, ("<ListBucketResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>"
                           f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>{token}{lines}"
                           "</ListBucketResult>").encode())
