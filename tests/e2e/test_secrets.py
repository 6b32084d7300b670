"""Credentials go into signatures and nowhere else, least of all when something fails."""

import s3_server
from run_wisp import run
from session import Session

WRONG = "not-the-secret-at-all"
TOKEN = "session-token-nobody-may-see"


def test_no_output_file_or_object_holds_a_credential(tmp_path, server, bucket):
    session = Session(tmp_path, bucket, seed=71)
    replica = tmp_path / "replica"
    good = bucket.environment
    nobody = f"http://127.0.0.1:{s3_server.free_port()}"
    settings = [
        good,
        {**good, "AWS_SECRET_ACCESS_KEY": WRONG},
        {**good, "AWS_SESSION_TOKEN": TOKEN},
        {**good, "AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": WRONG},
    ]
    session.train(0)
    calls = [
        ["init", bucket.url], session.call(0),
        ["pull", bucket.url, "--into", replica, "--json"],
        ["pull", bucket.url, "--into", replica, "--log", tmp_path / "events"],
        ["log", bucket.url], ["status", bucket.url, "--json"], ["scrub", bucket.url],
        ["compact", bucket.url], ["retain", bucket.url], ["doctor", bucket.url, "--quick"],
        ["export", bucket.url, "-o", tmp_path / "out"],
        ["pull", f"{server.url}-none/run", "--into", tmp_path / "none"],
        ["pull", f"{bucket.url}/nothing", "--into", tmp_path / "none"],
    ]
    said, failures = [], 0
    for environment in settings:
        for call in calls:
            done = run(*call, env=environment)
            said.append(done.out + done.err)
            failures += done.code != 0
    unreachable = {**good, "AWS_ENDPOINT_URL": nobody, "AWS_ENDPOINT_URL_S3": nobody}
    done = run("log", bucket.url, env=unreachable, timeout=200)
    assert done.code == 5, done
    said.append(done.out + done.err)
    assert failures > len(calls), "the failing ones failed"
    secrets = [s3_server.SECRET_KEY, WRONG, TOKEN, "Signature=", "X-Amz-Signature"]
    for text in said:
        assert not any(secret in text for secret in secrets), text
    for place in (tmp_path, bucket.objects):
        for path in place.rglob("*"):
            if path.is_file():
                data = path.read_bytes()
                assert not any(secret.encode() in data for secret in secrets), path
