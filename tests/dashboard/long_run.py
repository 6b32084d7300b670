"""A run of many commits in little time: the last one of a real run, again and again, each on the one before.

The log is sound: numbers, hashes, checks and the references to older commits are what a trainer would write. All deltas are
the same object, so nothing can be followed; only what looks at the log is tried with it.
"""

import hashlib
import json


def _ancestors(known, seq, parent):
    """src/log/commit.cpp, ancestors_after: ever older commits, so that a long chain is gone down in a few reads."""
    found, lowest, bits = [], parent, 4
    while bits < 64 and seq >> bits:
        older = next((ref for ref in known if ref["seq"] >> bits < seq >> bits), None)
        if older is None:
            break
        if older["seq"] != lowest:
            lowest = older["seq"]
            found.append(older)
        bits += 4
    return found


def _line(commit):
    body = json.dumps(commit, separators=(",", ":"))
    check = hashlib.sha256((body + "\n").encode()).hexdigest()[:16]
    return body[:-1] + f',"check":"{check}"}}\n'


def lengthen(run, commits, every_ms=1000):
    """Until the log of the run in a folder has so many commits."""
    log = run / "commits"
    last = max(path.name for path in log.iterdir())
    text = (log / last).read_text()
    commit = json.loads(text)
    now = commit["time_ms"]
    known = [commit["previous"], *commit.get("ancestors", [])]
    del commit["check"]
    for seq in range(commit["seq"] + 1, commits + 1):
        parent = {"seq": seq - 1, "hash": hashlib.sha256(text.encode()).hexdigest()}
        older = _ancestors([parent, *known], seq, parent["seq"])
        fields = dict(commit, seq=seq, previous=parent, nonce=f"{seq:032x}", time_ms=now + (seq - commits) * every_ms)
        fields["state"] = dict(commit["state"], seq=seq, step=commit["state"]["step"] + seq - commit["seq"],
                               state_index=commit["state"]["state_index"] + seq - commit["seq"])
        fields.pop("ancestors", None)
        if older:
            fields = {key: value for name, part in fields.items()
                      for key, value in ((name, part), *([("ancestors", older)] if name == "previous" else []))}
        text = _line(fields)
        (log / f"{seq:020d}").write_text(text)
        known = [parent, *older]
    (run / "latest").write_text(json.dumps({"seq": commits, "wisp": "latest"}, separators=(",", ":")))
