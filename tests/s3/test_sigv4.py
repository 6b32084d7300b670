"""Our signatures against Amazon's published examples, and against botocore on random requests."""

import hashlib
import json
import os
import random
import subprocess
from urllib.parse import parse_qsl, quote

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

import sigv4_suite

SUITE = sigv4_suite.load()
ALPHABET = "abcXYZ019-._~/ +%&=?#:;@!$'()*,[]\"<>\\^`{|}äßé日本🙂"


def sign(requests):
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run([os.environ["WISP_SIGV4_PROBE"]], input=lines, capture_output=True,
                          text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def agrees_with_itself(case):
    return case["sts"].endswith(hashlib.sha256(case["creq"].encode()).hexdigest())


def signed_headers(case):
    """Two cases carry strings to sign of requests without Content-Length and with another charset
    than their request has; of these the string to sign and the signature are held."""
    headers = case["request"]["headers"]
    if agrees_with_itself(case):
        return headers
    return [(name, value.replace("utf-8", "utf8")) for name, value in headers
            if name != "Content-Length"]


@pytest.mark.parametrize("case", SUITE["tests"]["all"], ids=lambda case: case["name"])
def test_the_published_suite_is_signed_alike(case):
    request, config = case["request"], SUITE["config"]
    headers = signed_headers(case)
    [ours] = sign([{
        "method": request["method"],
        # Of services other than S3 the suite wants paths normalised; S3 takes keys as they are.
        "path": case["creq"].split("\n")[1] if case in SUITE["tests"]["normalizePath"]
        else request["path"],
        "query": parse_qsl(request["query"], keep_blank_values=True),
        "headers": headers,
        "payload_sha256": hashlib.sha256(request["body"].encode()).hexdigest(),
        "amz_date": dict(headers)["X-Amz-Date"],
        "region": config["region"],
        "service": config["service"],
        "access_key_id": config["accessKeyId"],
        "secret_access_key": config["secretAccessKey"],
    }])
    if agrees_with_itself(case):
        assert ours["canonical_request"] == case["creq"]
        assert ours["authorization"] == case["authz"]
    assert ours["string_to_sign"] == case["sts"]
    assert ours["authorization"].split("Signature=")[1] == case["authz"].split("Signature=")[1]


def test_all_but_two_published_cases_agree_with_themselves():
    assert sum(not agrees_with_itself(case) for case in SUITE["tests"]["all"]) == 2


def random_text(dice, longest):
    return "".join(dice.choice(ALPHABET) for _ in range(dice.randint(1, longest)))


def random_case(dice):
    """A request as botocore signs it, and the same for the probe."""
    path = "/bucket/" + random_text(dice, 40).strip("/")
    query = [(random_text(dice, 8), random_text(dice, 12) if dice.random() < 0.8 else "")
             for _ in range(dice.randint(0, 4))]
    body = dice.randbytes(dice.choice([0, 1, 100]))
    keys = Credentials("AKID" + str(dice.random()), "secret/" + str(dice.random()),
                       "token/+=" if dice.random() < 0.5 else None)
    region = dice.choice(["us-east-1", "eu-central-1", "auto"])
    url = "http://127.0.0.1:7070" + quote(path, safe="/~")
    if query:
        url += "?" + "&".join(f"{quote(name, safe='~')}={quote(value, safe='~')}"
                              for name, value in query)
    request = AWSRequest(method=dice.choice(["GET", "PUT", "POST", "DELETE", "HEAD"]), url=url,
                         data=body, headers={"Range": f"bytes=0-{dice.randint(0, 99)}",
                                             "X-Amz-Meta-Odd": " a   b "})
    S3SigV4Auth(keys, "s3", region).add_auth(request)
    theirs = request.headers["Authorization"]
    signed = [(name, value) for name, value in request.headers.items() if name != "Authorization"]
    return theirs, {
        "method": request.method, "path": path, "query": query,
        "headers": [*signed, ("Host", "127.0.0.1:7070")],
        "payload_sha256": hashlib.sha256(body).hexdigest(),
        "amz_date": request.headers["X-Amz-Date"], "region": region, "service": "s3",
        "access_key_id": keys.access_key, "secret_access_key": keys.secret_key,
    }


def test_botocore_signs_random_requests_alike():
    dice = random.Random(20150830)
    cases = [random_case(dice) for _ in range(1000)]
    answers = sign([ours for _, ours in cases])
    for (theirs, request), ours in zip(cases, answers, strict=True):
        assert ours["authorization"] == theirs, request
