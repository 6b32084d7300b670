"""The bucket API of a Hugging Face Hub on loopback, before the Xet project's own test server.

    with LoopbackHub() as hub:
        os.environ.update(hub.environment())

It knows what the client asks a Hub about buckets: their creation and facts, tokens for Xet, batches
of additions and removals as lines of JSON, facts by path, trees in pages, and where a file resolves
to. Content goes past it to Xet's storage server, as on the real Hub. A client that does not show the
token is refused; every call is counted by the class that the Hub's limits have for it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "s3"))
import s3_server  # noqa: E402

CAS_SERVER = "local_cas_server-1.8.0"
TOKEN = "hf_loopback_hush"
PAGE = 40
ABSENT = object()


def cas_server() -> Path | None:
    """The storage server, where `make test-all` or tools/test_servers.sh has built it."""
    try:
        return s3_server.tool(CAS_SERVER)
    except RuntimeError:
        return None


class Refusal(Exception):
    def __init__(self, status: int, error: str, code: str = "") -> None:
        super().__init__(error)
        self.status, self.code = status, code


def moment() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    server: HubServer

    def log_message(self, *_: Any) -> None:
        pass

    def answer(
        self, status: int, value: Any = ABSENT, headers: dict[str, str] | None = None
    ) -> None:
        body = b"" if value is ABSENT else json.dumps(value).encode()
        told = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        self.send_response(status)
        for name, text in {**told, **(headers or {})}.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def serve(self) -> None:
        hub = self.server.hub
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        split = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(split.query))
        hub.note(self.command, split.path)
        try:
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                raise Refusal(401, "Invalid username or password.")
            if hub.fail_next is not None:
                status, hub.fail_next = hub.fail_next, None
                raise Refusal(status, "said the loopback Hub")
            parts = [urllib.parse.unquote(part) for part in split.path.split("/")[1:]]
            if parts[:2] == ["api", "buckets"] and len(parts) >= 4:
                self.answer(*hub.api(self.command, f"{parts[2]}/{parts[3]}", parts[4:], query, raw))
            elif parts[0] == "buckets" and len(parts) >= 5 and parts[3] == "resolve":
                self.answer(200, headers=hub.resolve(f"{parts[1]}/{parts[2]}", parts[4]))
            else:
                raise Refusal(404, f"no such route: {self.path}")
        except Refusal as refusal:
            told = {"X-Error-Message": str(refusal)}
            if refusal.code:
                told["X-Error-Code"] = refusal.code
            self.answer(refusal.status, {"error": str(refusal)}, told)

    do_GET = do_POST = do_HEAD = do_DELETE = serve


class HubServer(ThreadingHTTPServer):
    daemon_threads = True
    hub: LoopbackHub


class LoopbackHub:
    def __init__(self) -> None:
        self.buckets: dict[str, dict[str, dict[str, Any]]] = {}
        self.lock = threading.Lock()
        self.calls: list[tuple[str, str, str]] = []  # (class, method, path)
        self.fail_next: int | None = None
        self.cas: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> LoopbackHub:
        self.folder = tempfile.TemporaryDirectory(prefix="wisp-loopback-hub-")
        self._start_cas()
        self.web = HubServer(("127.0.0.1", 0), Handler)
        self.web.hub = self
        threading.Thread(
            target=self.web.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.web.shutdown()
        self.web.server_close()
        if self.cas is not None:
            self.cas.kill()
            self.cas.wait()
        self.folder.cleanup()

    def _start_cas(self) -> None:
        """Another process may take the free port first; then another one is tried."""
        binary = s3_server.tool(CAS_SERVER)
        for _ in range(5):
            port = s3_server.free_port()
            self.cas_url = f"http://127.0.0.1:{port}"
            log = open(Path(self.folder.name, "cas.log"), "ab")  # noqa: SIM115
            with log:
                self.cas = subprocess.Popen(
                    [binary, "--in-memory", "--port", str(port)], stdout=log, stderr=log
                )
            if self._cas_is_up():
                return
            self.cas.kill()
            self.cas.wait()
        raise RuntimeError(Path(self.folder.name, "cas.log").read_text()[-2000:])

    def _cas_is_up(self) -> bool:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        deadline = time.monotonic() + 30
        assert self.cas is not None
        while time.monotonic() < deadline and self.cas.poll() is None:
            try:
                opener.open(f"{self.cas_url}/health", timeout=5)
                return True
            except urllib.error.HTTPError:
                return True
            except OSError:
                time.sleep(0.02)
        return False

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.web.server_port}"

    def environment(self) -> dict[str, str]:
        """What a client needs, and nothing from the user's own set-up."""
        nothing = ("HF_S3_ACCESS_KEY_ID", "HF_S3_SECRET_ACCESS_KEY", "HF_S3_ENDPOINT",
                   "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE")
        return {
            "HF_ENDPOINT": self.endpoint,
            "HF_TOKEN": TOKEN,
            "HF_HOME": str(Path(self.folder.name, "home")),
            "HF_HUB_OFFLINE": "0",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "NO_PROXY": "127.0.0.1",
            **dict.fromkeys(nothing, ""),
        }

    def note(self, method: str, path: str) -> None:
        kind = "resolvers" if "/resolve/" in path else "api"
        with self.lock:
            self.calls.append((kind, method, path))

    def files(self, bucket: str) -> dict[str, dict[str, Any]]:
        found = self.buckets.get(bucket)
        if found is None:
            raise Refusal(404, "Repository not found", "RepoNotFound")
        return found

    def api(
        self, method: str, bucket: str, rest: list[str], query: dict[str, str], raw: bytes
    ) -> tuple[Any, ...]:
        if not rest and method == "POST":
            return self._create(bucket)
        with self.lock:
            files = self.files(bucket)
            if not rest:
                size = sum(file["size"] for file in files.values())
                return 200, {"id": bucket, "private": True, "createdAt": moment(), "size": size,
                             "totalFiles": len(files)}
            if rest[0] in ("xet-read-token", "xet-write-token"):
                return self._token()
            if rest[0] == "paths-info":
                wanted = json.loads(raw)["paths"]
                return 200, [self._entry(path, files[path]) for path in wanted if path in files]
            if rest[0] == "tree":
                return self._tree(bucket, files, "/".join(rest[1:]), query)
        if rest[0] == "batch":
            return self._batch(bucket, raw)
        raise Refusal(404, f"no such route: {rest[0]}")

    def _create(self, bucket: str) -> tuple[Any, ...]:
        with self.lock:
            there = bucket in self.buckets
            self.buckets.setdefault(bucket, {})
        value = {"url": f"{self.endpoint}/buckets/{bucket}", "id": bucket}
        return (409, {**value, "error": "exists already"}) if there else (200, value)

    def _token(self) -> tuple[Any, ...]:
        expires = int(time.time()) + 3600
        return (
            200,
            {"accessToken": "xet", "exp": expires, "casUrl": self.cas_url},
            {"X-Xet-Cas-Url": self.cas_url, "X-Xet-Access-Token": "xet",
             "X-Xet-Token-Expiration": str(expires)},
        )

    @staticmethod
    def _entry(path: str, file: dict[str, Any]) -> dict[str, Any]:
        return {"type": "file", "path": path, **file}

    def _tree(
        self, bucket: str, files: dict[str, Any], folder: str, query: dict[str, str]
    ) -> tuple[Any, ...]:
        """What lies in a folder, however deep, in pages as the Hub cuts them."""
        below = sorted(p for p in files if not folder or p.startswith(folder.rstrip("/") + "/"))
        if folder and not below:
            raise Refusal(404, "Entry not found", "EntryNotFound")
        first = int(query.get("cursor", "0"))
        page = [self._entry(path, files[path]) for path in below[first : first + PAGE]]
        if first + PAGE >= len(below):
            return 200, page
        where = urllib.parse.quote(f"/api/buckets/{bucket}/tree" + (f"/{folder}" if folder else ""))
        again = urllib.parse.urlencode({**query, "cursor": first + PAGE})
        return 200, page, {"Link": f'<{self.endpoint}{where}?{again}>; rel="next"'}

    def _batch(self, bucket: str, raw: bytes) -> tuple[Any, ...]:
        failed, done = [], 0
        for line in raw.splitlines():
            wanted = json.loads(line)
            path = wanted["path"]
            try:
                if wanted["type"] == "addFile":
                    size = self._stored_size(wanted["xetHash"])
                    now = moment()
                    file = {"xetHash": wanted["xetHash"], "size": size, "mtime": now,
                            "uploadedAt": now}
                    with self.lock:
                        self.files(bucket)[path] = file
                elif wanted["type"] == "deleteFile":
                    with self.lock:
                        if self.files(bucket).pop(path, None) is None:
                            raise Refusal(404, "no such file")
                else:
                    raise Refusal(400, f"what is {wanted['type']}?")
                done += 1
            except (Refusal, urllib.error.URLError) as trouble:
                failed.append({"path": path, "error": str(trouble)})
        told = {"success": not failed, "processed": done + len(failed), "succeeded": done,
                "failed": failed}
        return (200 if done or not failed else 422), told

    def _stored_size(self, content: str) -> int:
        """Only what Xet really holds can be added; it says how large it is."""
        request = urllib.request.Request(f"{self.cas_url}/v1/files/{content}", method="HEAD")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=30) as answer:
            return int(answer.headers["Content-Length"])

    def resolve(self, bucket: str, path: str) -> dict[str, str]:
        with self.lock:
            file = self.files(bucket).get(path)
        if file is None:
            raise Refusal(404, "Entry not found", "EntryNotFound")
        return {
            "X-Xet-Hash": file["xetHash"],
            "X-Linked-Size": str(file["size"]),
            "ETag": f'"{file["xetHash"]}"',
            "Link": f'<{self.endpoint}/api/buckets/{bucket}/xet-read-token>; rel="xet-auth"',
        }
