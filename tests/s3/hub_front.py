"""The S3 gateway of the Hugging Face Hub, as its documentation describes it, on loopback.

    with HubFront() as front:
        subprocess.run([...], env={**os.environ, **front.environment()})

Behind it a real S3 server keeps the objects and decides conditional writes. In front of that:
addresses are /<namespace>/<bucket>/<key>; GET of an object is answered by a redirect to another
host, which wants no credentials and refuses to be given any; trailing checksums and user metadata,
virtual-hosted addresses, the first ListObjects and keys that the Hub does not take are refused;
every answer counts against a window and says what is left of it. Every signature is checked, by
botocore.
"""

import hashlib
import http.client
import http.server
import secrets
import threading
import time
import urllib.parse

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

import s3_server

NAMESPACE = "acme"
BUCKET = "weights"
ACCESS_KEY = "HFAKwisptest"
SECRET_KEY = "hub-secret-hush"
FORWARDED = ("range", "if-none-match", "if-match", "content-type")
RETURNED = ("content-type", "content-range", "etag", "last-modified", "date", "accept-ranges")


class Refused(Exception):
    def __init__(self, status, code):
        super().__init__(f"{status} {code}")
        self.status, self.code = status, code


def forbidden_key(key):
    return (key.startswith(("/", "./")) or key.endswith(("/", "..")) or "//" in key
            or "../" in key or "\\" in key or "\0" in key)


class Backend:
    """Requests to the real server, signed anew."""

    def __init__(self, server):
        self.server = server
        self.local = threading.local()
        self.keys = Credentials(s3_server.ACCESS_KEY, s3_server.SECRET_KEY)

    def ask(self, method, path, query, headers, body):
        target = path + (f"?{query}" if query else "")
        request = AWSRequest(method, self.server.endpoint + target, headers, body)
        S3SigV4Auth(self.keys, "s3", "us-east-1").add_auth(request)
        for fresh in (False, True):
            line = getattr(self.local, "line", None)
            if line is None or fresh:
                line = self.local.line = http.client.HTTPConnection(
                    "127.0.0.1", self.server.port, timeout=60)
            try:
                line.request(method, target, body, dict(request.headers))
                answer = line.getresponse()
                return answer, answer.read()
            except (http.client.HTTPException, OSError):
                line.close()
                if fresh:
                    raise


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16

    def log_message(self, *_):
        pass

    def parts(self):
        split = urllib.parse.urlsplit(self.path)
        return split.path, split.query

    def reply(self, status, headers=(), body=b"", length=None):
        self.send_response(status)
        for name, value in headers:
            if name.lower() != "date":
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, refused, headers=()):
        text = f"<Error><Code>{refused.code}</Code><Message>said the front</Message></Error>"
        self.reply(refused.status, [*headers, ("Content-Type", "application/xml")], text.encode())

    def pass_on(self, answer, body, headers=()):
        kept = [(n, v) for n, v in answer.getheaders() if n.lower() in RETURNED]
        length = answer.getheader("Content-Length") if self.command == "HEAD" else None
        self.reply(answer.status, [*kept, *headers], body, length)


class GatewayHandler(Handler):
    def serve(self):
        front = self.server.front
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        limit = front.count(self.command, self.path, self.headers)
        try:
            if limit.refused:
                raise Refused(429, "TooManyRequests")
            self.check_form(body)
            self.check_signature(body)
            self.act(body, limit.headers)
        except Refused as refused:
            self.refuse(refused, limit.headers)

    def check_form(self, body):
        names = [name.lower() for name in self.headers]
        if "x-amz-trailer" in names or "aws-chunked" in self.headers.get("Content-Encoding", ""):
            raise Refused(400, "TrailingChecksums")
        if any(name.startswith(("x-amz-meta-", "x-amz-checksum-", "x-amz-sdk-")) for name in names):
            raise Refused(400, "UserMetadata")
        if hashlib.sha256(body).hexdigest() != self.headers.get("x-amz-content-sha256"):
            raise Refused(400, "XAmzContentSHA256Mismatch")

    def check_signature(self, _body):
        given = self.headers.get("Authorization", "")
        fields = dict(part.strip().split("=", 1) for part in given.partition(" ")[2].split(","))
        if fields.get("Credential", "").split("/")[0] != ACCESS_KEY:
            raise Refused(403, "InvalidAccessKeyId")
        signed = fields["SignedHeaders"].split(";")
        request = AWSRequest(self.command, f"http://{self.headers['Host']}{self.path}",
                             {name: self.headers[name] for name in signed if name != "host"})
        request.context["timestamp"] = self.headers["x-amz-date"]
        judge = S3SigV4Auth(Credentials(ACCESS_KEY, SECRET_KEY), "s3", "us-east-1")
        text = judge.string_to_sign(request, judge.canonical_request(request))
        if judge.signature(text, request) != fields["Signature"]:
            raise Refused(403, "SignatureDoesNotMatch")

    def act(self, body, headers):
        front = self.server.front
        path, query = self.parts()
        names = [urllib.parse.unquote(part) for part in path.split("/", 3)]
        _, namespace, bucket, key = (names + ["", "", ""])[:4]
        if (namespace, bucket) != (NAMESPACE, BUCKET):
            raise Refused(404, "NoSuchBucket")
        if key and forbidden_key(key):
            raise Refused(400, "InvalidObjectName")
        asked = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        if self.command == "GET" and not key and asked.get("list-type") != "2":
            raise Refused(501, "NotImplemented")
        if self.command == "GET" and key:
            where = front.publish_link(key)
            return self.reply(302, [("Location", where), *headers])
        kept = {n: self.headers[n] for n in FORWARDED if n in self.headers}
        target = "/" + urllib.parse.quote(BUCKET + ("/" + key if key else ""), safe="/-_.~")
        answer, answered = front.backend.ask(self.command, target, query, kept, body)
        self.pass_on(answer, answered, headers)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = serve


class CdnHandler(Handler):
    """Knows links, not keys; a client that shows it a secret is remembered."""

    def serve(self):
        front = self.server.front
        names = [name.lower() for name in self.headers]
        told = [name for name in names if name == "authorization" or name.startswith("x-amz-")]
        if told:
            front.leaks.append((self.path, told))
            return self.refuse(Refused(400, "OnlyOneAuthMechanismAllowed"))
        key = front.links.get(self.path)
        if key is None:
            return self.refuse(Refused(403, "AccessDenied"))
        front.served.append(key)
        kept = {n: self.headers[n] for n in ("range",) if n in self.headers}
        target = "/" + urllib.parse.quote(f"{BUCKET}/{key}", safe="/-_.~")
        answer, answered = front.backend.ask(self.command, target, "", kept, b"")
        self.pass_on(answer, answered)

    do_GET = do_HEAD = serve


class Limit:
    def __init__(self, refused, headers):
        self.refused, self.headers = refused, headers


class HubFront:
    def __init__(self, quota=1_000_000, window_seconds=300):
        self.server = s3_server.S3Server(bucket=BUCKET)
        self.quota, self.window_seconds = quota, window_seconds
        self.lock = threading.Lock()
        self.window_start, self.window_count = time.monotonic(), 0
        self.requests = []  # (when, method, path, conditional, refused)
        self.leaks, self.served, self.links = [], [], {}

    def __enter__(self):
        self.server.__enter__()
        self.backend = Backend(self.server)
        self.gateway = self._start(GatewayHandler)
        self.cdn = self._start(CdnHandler)
        return self

    def __exit__(self, *_):
        for web in (self.gateway, self.cdn):
            web.shutdown()
            web.server_close()
        self.server.__exit__()

    def _start(self, handler):
        web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        web.daemon_threads = True
        web.front = self
        threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.05},
                         daemon=True).start()
        return web

    def set_quota(self, quota, window_seconds):
        with self.lock:
            self.quota, self.window_seconds = quota, window_seconds
            self.window_start, self.window_count = time.monotonic(), 0

    def count(self, method, path, headers):
        now = time.monotonic()
        with self.lock:
            if now - self.window_start >= self.window_seconds:
                self.window_start, self.window_count = now, 0
            self.window_count += 1
            left = self.quota - self.window_count
            self.requests.append((now, method, path, "if-none-match" in headers, left < 0))
            reset = int(self.window_start + self.window_seconds - now) + 1
        policy = f'"fixed window";"api";q={self.quota};w={self.window_seconds}'
        said = [("RateLimit", f'"api";r={max(left, 0)};t={reset}'), ("RateLimit-Policy", policy)]
        return Limit(left < 0, said)

    def publish_link(self, key):
        path = f"/xet-bridge/{secrets.token_hex(8)}?X-Amz-Signature={secrets.token_hex(8)}&x=%2F"
        self.links[path] = key
        return f"http://localhost:{self.cdn.server_port}{path}"

    @property
    def url(self):
        return f"hf://buckets/{NAMESPACE}/{BUCKET}"

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.gateway.server_port}"

    def environment(self):
        """What a client needs, and nothing from the user's own set-up."""
        return {
            "HF_S3_ENDPOINT": self.endpoint,
            "HF_S3_ACCESS_KEY_ID": ACCESS_KEY,
            "HF_S3_SECRET_ACCESS_KEY": SECRET_KEY,
            "HF_ENDPOINT": "", "HF_TOKEN": "", "HF_HOME": "/nonexistent", "HF_TOKEN_PATH": "",
            "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_PROFILE": "",
            "AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1",
            "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
            "NO_PROXY": "127.0.0.1,localhost",
            "WISP_TEST_BUCKET": self.url,
        }
