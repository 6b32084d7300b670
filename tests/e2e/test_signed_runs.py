"""Signed runs, their certificates over the years, and writers to the bucket without a key."""

import json
import os
import shutil
import time

import pytest

import run_wisp
import signed_objects as forge
from run_wisp import DENIED, OK, answer, run, wisp
from session import FORKED, GAP, UNAVAILABLE, Session

FAKETIME = shutil.which("faketime")
DAY = 86_400


class SignedSession(Session):
    """A trainer with a certified key, and replicas that trust the root."""

    def start(self):
        self.keys = self.folder / "keys"
        self.keys.mkdir()
        for name in ("root", "trainer"):
            wisp("key", "new", self.keys / f"{name}.key")
        self.certify(1, "30d")
        answer("init", self.place.url, "--root", self.keys / "root.key.pub")
        return self

    def certify(self, serial, lasting, key="trainer"):
        wisp("key", "certify", "--root", self.keys / "root.key", "--subject",
             self.keys / f"{key}.key.pub", "--serial", serial, "--expires", lasting, "-o",
             self.keys / f"{key}.cert")

    @property
    def sign_for_ever(self):
        """Commits that no clock makes stale."""
        return [*self.sign, "--expires", "0"]

    @property
    def sign(self):
        return ["--sign-key", self.keys / "trainer.key", "--certificate",
                self.keys / "trainer.cert"]

    @property
    def trust(self):
        return ["--trust", self.keys / "root.key.pub"]

    def publish_signed(self, *steps):
        for step in steps:
            self.publish(step, *self.sign_for_ever)

    def pulling(self, into, *more):
        return ["pull", self.place.url, "--into", into, *self.trust, *more]


@pytest.fixture
def session(tmp_path, folder):
    return SignedSession(tmp_path, folder, seed=71).start()


def later(days, *arguments):
    """A verb of a process that believes it is that many days later."""
    return run("-f", f"{days:+d}d", run_wisp.BINARY, *arguments, binary=FAKETIME,
               env={"FAKETIME_DONT_FAKE_MONOTONIC": "1"})


needs_faketime = pytest.mark.skipif(
    FAKETIME is None or run_wisp.is_sanitized(),
    reason="needs faketime, which does not go together with a sanitizer")


@needs_faketime
def test_life_of_a_certificate(session, tmp_path):
    """Renewed in time, renewed too late, and a replica that slept through all of it."""
    session.publish_signed(0, 1)
    assert wisp(*session.pulling(tmp_path / "sleeper")).code == OK
    session.certify(2, "60d")
    session.publish_signed(2, 3)
    for into in ("sleeper", "newcomer"):
        done = later(40, *session.pulling(tmp_path / into))
        assert done.code == OK, done
        assert session.holds(tmp_path / into, 3)
    # Both have ended: nothing vouches for the run, and nothing is signed under them.
    assert later(70, *session.pulling(tmp_path / "late")).code == DENIED
    session.train(4)
    ended = later(70, *session.call(4), *session.sign_for_ever)
    assert ended.code == DENIED and "expired" in ended.err, ended
    stale = later(70, *session.pulling(tmp_path / "sleeper"))
    assert stale.code == UNAVAILABLE and "stale" in stale.err, "it keeps what it has, and says so"
    assert session.holds(tmp_path / "sleeper", 3)
    session.certify(3, "365d")
    done = later(70, *session.call(4), *session.sign_for_ever, *session.trust)
    assert done.code == OK, done
    for into in ("sleeper", "late"):
        done = later(70, *session.pulling(tmp_path / into))
        assert done.code == OK and session.holds(tmp_path / into, 4), done


@needs_faketime
def test_signed_run_expires_by_itself_and_heartbeats_move_that_on(session, tmp_path):
    session.publish(0, *session.sign)
    assert wisp(*session.pulling(tmp_path / "replica")).code == OK
    assert later(2, *session.pulling(tmp_path / "replica")).code == UNAVAILABLE
    beat = later(2, "publish", session.place.url, "--heartbeat", "--baseline", session.baseline,
                 *session.sign)
    assert beat.code == OK, beat
    assert later(2, *session.pulling(tmp_path / "replica")).code == OK


@needs_faketime
def test_hint_at_a_lapsed_commit_is_only_a_hint(session, tmp_path):
    session.publish_signed(0)
    hint = (session.place.objects / "latest").read_bytes()
    session.certify(2, "90d")
    session.publish_signed(1)
    (session.place.objects / "latest").write_bytes(hint)
    done = later(40, *session.pulling(tmp_path / "replica"))
    assert done.code == OK and session.holds(tmp_path / "replica", 1), done


def test_replica_a_few_steps_behind_a_renewal_is_not_revoked(session, tmp_path):
    session.publish_signed(0)
    wisp(*session.pulling(tmp_path / "replica"))
    session.publish_signed(1, 2, 3)
    session.certify(2, "30d")
    session.publish_signed(4, 5)
    wisp(*session.pulling(tmp_path / "replica"))
    assert session.holds(tmp_path / "replica", 5)


@needs_faketime
def test_history_rewritten_with_a_stolen_key_is_noticed(session, tmp_path):
    """The commit with the manifest, with another config.json, under a certificate that ended."""
    session.publish_signed(0, 1)
    objects = session.place.objects
    carrier = max(s for s in range(1, forge.head_seq(objects) + 1) if "manifest" in forge.read(objects, s))
    body = forge.read(objects, carrier)
    forged = b'{"forged": true}'
    digest = forge.hashlib.sha256(forged).hexdigest()
    key = f"anchors/step_000000-e1-{digest[:16]}.file"
    (objects / key).write_bytes(forged)
    body["manifest"]["anchors"][0]["files"].append(
        {"name": "config.json", "parts": [{"key": key, "bytes": len(forged), "sha256": digest}]})
    line = forge.line_of(body)
    block = forge.signature(tmp_path, session.keys / "trainer.key", line,
                            session.keys / "trainer.cert")
    session.certify(2, "90d")
    session.publish_signed(2)
    forge.slot(objects, carrier).write_bytes(line + block)
    done = later(40, *session.pulling(tmp_path / "replica"))
    assert done.code == FORKED and "rewritten" in done.err, done
    assert not (tmp_path / "replica" / "config.json").exists()


def attacks(objects, run_id):
    head = forge.head_seq(objects)
    empty = {"anchors": [], "merged_deltas": []}
    merge = forge.follower_of(objects, head, kind="merge", manifest=empty)
    merge.pop("manifest_at", None)
    fence = forge.follower_of(objects, head, kind="fence", owner="e" * 32)
    fence["epoch"] += 1
    tombstone = {"wisp": "tombstone", "version": 1, "run": run_id, "seq": head + 1,
                 "floor": head + 1}
    return {"merge": forge.line_of(merge), "fence": forge.line_of(fence),
            "tombstone": forge.line_of(tombstone), "nonsense": b"nonsense"}


@pytest.mark.parametrize("attack", ["merge", "fence", "tombstone", "nonsense"])
def test_keyless_writer_neither_wedges_nor_fools_anyone(session, tmp_path, attack):
    session.publish_signed(0, 1)
    wisp(*session.pulling(tmp_path / "replica"))
    objects = session.place.objects
    run_id = answer("status", session.place.url)["run"]
    forge.slot(objects, forge.head_seq(objects) + 1).write_bytes(attacks(objects, run_id)[attack])
    begun = time.monotonic()
    assert answer("status", session.place.url)["head"]["step"] == 1
    assert wisp(*session.pulling(tmp_path / "replica")).code == OK
    assert answer("retain", session.place.url, "--grace", "0", *session.sign)["ok"]
    session.publish_signed(2, 3)
    for into in ("replica", "newcomer"):
        wisp(*session.pulling(tmp_path / into))
        assert session.holds(tmp_path / into, 3)
    assert time.monotonic() - begun < 60
    told = run("scrub", session.place.url, "--json", *session.trust)
    assert "commits/" in told.out, "the intruder is named"


@pytest.mark.parametrize("attack", ["merge", "fence"])
def test_the_same_forgeries_move_a_run_without_keys(tmp_path, folder, attack):
    """So it is their missing signature that they fail by, and not their form."""
    session = Session(tmp_path, folder, seed=75).init()
    session.publish(0)
    run_id = answer("status", folder.url)["run"]
    forged = forge.head_seq(folder.objects) + 1
    forge.slot(folder.objects, forged).write_bytes(attacks(folder.objects, run_id)[attack])
    assert answer("status", folder.url)["head"]["seq"] == forged


def test_maintenance_without_a_key_writes_nothing(session, tmp_path):
    session.publish_signed(*range(6))
    head = forge.head_seq(session.place.objects)
    done = run("compact", session.place.url)
    assert done.code == DENIED and "--sign-key" in done.err, done
    assert forge.head_seq(session.place.objects) == head
    wisp(*session.pulling(tmp_path / "replica"))


def test_missing_commit_makes_nothing_removable(tmp_path, folder):
    session = Session(tmp_path, folder, seed=72).init()
    for step in range(8):
        session.publish(step)
    objects = folder.objects
    gone = forge.slot(objects, forge.head_seq(objects) - 3)
    kept = gone.read_bytes()
    gone.unlink()
    old = time.time() - 3 * DAY
    for path in objects.rglob("*"):
        os.utime(path, (old, old))
    before = sorted(objects.rglob("*"))
    done = run("retain", folder.url, "--grace", "0")
    assert done.code == GAP and "missing" in done.err, done
    assert sorted(objects.rglob("*")) == before
    for verb in (["log", folder.url], ["export", folder.url, "-o", tmp_path / "no"]):
        assert run(*verb).code == GAP
    gone.write_bytes(kept)
    answer("retain", folder.url, "--grace", "0")
    for step in range(8):
        wisp("export", folder.url, "--step", step, "-o", tmp_path / f"step{step}")
        assert session.holds(tmp_path / f"step{step}", step)


def test_hole_above_a_replica_is_a_gap_and_not_silence(tmp_path, folder):
    session = Session(tmp_path, folder, seed=73).init()
    session.publish(0)
    session.follows(tmp_path / "replica", 0)
    head = forge.head_seq(folder.objects)
    for step in range(1, 4):
        session.publish(step)
    lost = forge.slot(folder.objects, head + 1)
    kept = lost.read_bytes()
    lost.unlink()
    done = run("pull", folder.url, "--into", tmp_path / "replica")
    assert done.code == GAP, done
    assert session.holds(tmp_path / "replica", 0)
    lost.write_bytes(kept)
    session.follows(tmp_path / "replica", 3)


def test_label_of_a_bounded_replica_is_its_weights(tmp_path, folder):
    session = Session(tmp_path, folder, seed=74).init()
    for step in range(6):
        session.publish(step)
    replica = tmp_path / "replica"
    session.follows(replica, 5)
    weights = replica / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-2])
    bounded = ["pull", folder.url, "--into", replica, "--until-step", 3]
    wisp(*bounded)
    assert session.holds(replica, 3)
    wisp("publish", folder.url, "--heartbeat", "--baseline", session.baseline)
    for arguments in (bounded, [*bounded[:4]]):
        wisp(*arguments)
        told = json.loads((replica / ".wisp" / "replica.json").read_text())["at"]
        assert session.holds(replica, told["step"])
    assert session.holds(replica, 5)
