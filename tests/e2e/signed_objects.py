"""Commits of a run in a folder as an attacker rewrites them, signed with a stolen key or not."""

import hashlib
import json
import subprocess
from pathlib import Path


def slot(objects, seq):
    return objects / "commits" / f"{seq:020d}"


def head_seq(objects):
    return max(int(path.name) for path in (objects / "commits").iterdir())


def read(objects, seq):
    """The body of a commit."""
    return json.loads(slot(objects, seq).read_bytes().split(b"\n")[0])


def hash_of(objects, seq):
    return hashlib.sha256(slot(objects, seq).read_bytes()).hexdigest()


def line_of(body):
    """One line of a record, with the check that every reader looks at first."""
    body = {key: value for key, value in body.items() if key != "check"}
    plain = json.dumps(body, separators=(",", ":"))
    check = hashlib.sha256((plain + "\n").encode()).hexdigest()[:16]
    return f'{plain[:-1]},"check":"{check}"}}\n'.encode()


def follower_of(objects, seq, **changes):
    """What stands after commit `seq` and makes no state, before it is signed."""
    body = read(objects, seq)
    for field in ("delta", "base", "manifest", "rewind_from", "ancestors"):
        body.pop(field, None)
    body.update(seq=seq + 1, previous={"seq": seq, "hash": hash_of(objects, seq)}, **changes)
    return body


def signature(tmp_path, key, line, certificate=None):
    """The block under a commit, as doc/trust.md says it is made."""
    message = tmp_path / "message"
    message.write_bytes(b"wisp commit\n" + line)
    signed = subprocess.run(
        ["openssl", "pkeyutl", "-sign", "-rawin", "-inkey", key, "-in", message],
        check=True, capture_output=True).stdout
    public = bytes.fromhex(Path(f"{key}.pub").read_text().strip().removeprefix("ed25519:"))
    block = f"ed25519 {hashlib.sha256(public).hexdigest()[:16]} {signed.hex()}\n"
    return (block + (certificate.read_text() if certificate else "")).encode()
