"""A real S3 server on loopback, started for a test and gone after it.

    with S3Server() as server:
        subprocess.run([...], env={**os.environ, **server.environment()})
"""

import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

KNOWN_GOOD = "1.8.0"
KNOWN_BAD = "1.7.0"  # lets several of interleaved conditional PUTs win

ACCESS_KEY = "wisp-test-key"
SECRET_KEY = "wisp-test-secret"


def tool(name):
    """A program that tools/test_servers.sh has made available."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    path = Path(cache, "wisp-tools", "bin", name)
    if not path.is_file():
        raise RuntimeError(f"{path} is missing; run tools/test_servers.sh")
    return path


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class S3Server:
    """One versitygw over a fresh folder; stop() and start() keep what it holds."""

    def __init__(self, version=KNOWN_GOOD, bucket="wisp-test"):
        self.binary = tool(f"versitygw-{version}")
        self.bucket = bucket
        self.folder = None
        self.process = None
        self.port = None

    def __enter__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="wisp-s3-"))
        (self.folder / "data" / self.bucket).mkdir(parents=True)
        # Beside the data: not every file system of /tmp takes extended attributes.
        (self.folder / "meta").mkdir()
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self):
        return f"s3://{self.bucket}"

    @property
    def objects(self):
        """Where the objects of the bucket lie as files."""
        return self.folder / "data" / self.bucket

    def environment(self):
        """What a client needs, and nothing from the user's own AWS setup."""
        return {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_SESSION_TOKEN": "",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
            "AWS_PROFILE": "",
            "WISP_TEST_BUCKET": self.url,
        }

    def start(self):
        """Another process may take the free port first; then another one is tried."""
        for _ in range(5):
            self.port = self.port or free_port()
            self._launch()
            if self._wait_until_up():
                return
            self.stop()
            self.port = None
        raise RuntimeError(f"{self.binary} does not start:\n{self.log_tail()}")

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def log_tail(self):
        return (self.folder / "log").read_text(errors="replace")[-2000:]

    def _launch(self):
        secrets = {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
        command = [self.binary, "--port", f"127.0.0.1:{self.port}", "--keep-alive", "--quiet",
                   "posix", "--sidecar", self.folder / "meta", self.folder / "data"]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(command, env={**os.environ, **secrets},
                                            stdout=log, stderr=log, cwd=self.folder)

    def _wait_until_up(self):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
                    self.endpoint, timeout=5)
            except urllib.error.HTTPError:
                return True  # it refuses a request without a signature: it is up
            except OSError:
                time.sleep(0.02)
        return False
