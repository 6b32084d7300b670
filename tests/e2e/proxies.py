"""What stands between a client and the S3 server: a proxy with rules, and a slow link."""

import http.client
import http.server
import json
import subprocess
import threading
import time
import urllib.error
import urllib.request

import s3_server


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """A client that was killed is what these tests are about."""


class RuledProxy:
    """Forwards HTTP requests; `rule(method, path)` says what becomes of each.

    "pass"      as if nothing stood between
    "cut reply" the server gets it all; the client gets a closed connection
    "hold reply" the server gets it all; the client waits for an answer that never comes
    "drop"      the server gets nothing; the client waits for an answer that never comes
    """

    def __init__(self, port):
        self.upstream = port
        self.rule = lambda method, path: "pass"
        self.seen = []
        self._freed = threading.Event()
        self.held = threading.Event()

    def __enter__(self):
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def forward(self):
                proxy.handle(self)

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = forward

        self.server = _Server(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.release()
        self.server.shutdown()
        self.server.server_close()

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    def release(self):
        self._freed.set()

    def handle(self, client):
        body = client.rfile.read(int(client.headers.get("Content-Length", 0)))
        action = self.rule(client.command, client.path)
        self.seen.append((client.command, client.path, action))
        if action == "drop":
            self.hold(client)
            return
        upstream = http.client.HTTPConnection("127.0.0.1", self.upstream, timeout=60)
        try:
            # The host was signed: it goes on as the client wrote it.
            upstream.putrequest(client.command, client.path, skip_host=True,
                                skip_accept_encoding=True)
            for name, value in client.headers.items():
                if name.lower() not in ("expect", "connection"):
                    upstream.putheader(name, value)
            upstream.endheaders(body)
            reply = upstream.getresponse()
            data = reply.read()
        finally:
            upstream.close()
        if action == "hold reply":
            self.hold(client)
            return
        if action == "cut reply":
            self.cut(client)
            return
        client.send_response_only(reply.status)
        for name, value in reply.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                client.send_header(name, value)
        length = reply.getheader("Content-Length") if client.command == "HEAD" else len(data)
        client.send_header("Content-Length", str(length or 0))
        client.end_headers()
        client.wfile.write(data)

    def hold(self, client):
        """Until the test is over: the process that waits here is meant to be killed."""
        self.held.set()
        self._freed.wait(120)
        self.cut(client)

    @staticmethod
    def cut(client):
        client.close_connection = True
        try:
            client.connection.shutdown(2)
        except OSError:
            pass  # it is gone already


class SlowLink:
    """toxiproxy before a server; rate(n) lets n kilobytes a second go up, None all of them."""

    def __init__(self, port):
        self.upstream = port
        self.port = s3_server.free_port()
        self.control = f"http://127.0.0.1:{s3_server.free_port()}"

    def __enter__(self):
        host, port = self.control[len("http://"):].split(":")
        self.process = subprocess.Popen(
            [s3_server.tool("toxiproxy-server"), "-host", host, "-port", port],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self._wait_until_up()
            self._post("/proxies", {"name": "s3", "listen": f"127.0.0.1:{self.port}",
                                    "upstream": f"127.0.0.1:{self.upstream}", "enabled": True})
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.port}"

    def rate(self, kilobytes_per_second):
        try:
            self._call("DELETE", "/proxies/s3/toxics/slow")
        except urllib.error.HTTPError:
            pass  # there was none
        if kilobytes_per_second is not None:
            self._post("/proxies/s3/toxics",
                       {"name": "slow", "type": "bandwidth", "stream": "upstream",
                        "attributes": {"rate": kilobytes_per_second}})

    def _call(self, method, path, data=None):
        request = urllib.request.Request(self.control + path, data, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        return opener.open(request, timeout=10).read()

    def _post(self, path, value):
        return self._call("POST", path, json.dumps(value).encode())

    def _wait_until_up(self):
        deadline = time.monotonic() + 30
        while True:
            try:
                return self._call("GET", "/version")
            except OSError:
                assert time.monotonic() < deadline, "toxiproxy does not start"
                time.sleep(0.02)
