"""Damaged objects: a replica goes another way or stops with its old state, never with a wrong one."""

import hashlib
import itertools
import json
import shutil

import pytest

import st
from checkpoints import folder_tensors
from session import DAMAGED, FORKED, GAP, Place, Session

STEPS = 9


def flip(where):
    def damage(path):
        data = bytearray(path.read_bytes())
        data[min(len(data) - 1, int(where * len(data)))] ^= 0x04
        path.write_bytes(data)
    return damage


def cut(share):
    return lambda path: path.write_bytes(path.read_bytes()[:int(share * path.stat().st_size)])


def blank(path):
    path.write_bytes(bytes(path.stat().st_size))


def lengthen(path):
    path.write_bytes(path.read_bytes() + b"\n")


DAMAGES = {
    "flip first": flip(0), "flip early": flip(0.05), "flip middle": flip(0.5),
    "flip last": flip(1), "empty": cut(0), "cut": cut(0.6), "zeros": blank, "longer": lengthen,
    "delete": lambda path: path.unlink(),
}


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    """A run with two anchors, merged deltas and a replica at step 3."""
    top = tmp_path_factory.mktemp("origin")
    session = Session(top, Place(str(top / "bucket"), top / "bucket"), seed=51).init()
    for step in range(STEPS):
        session.publish(step, *(["--anchor-every", 1] if step == 5 else []))
        if step == 3:
            session.follows(top / "behind", 3)
    session.verb("compact")
    session.follows(top / "current", STEPS - 1)
    return top, session


def victims(session):
    """One object of each class that a follower may read, by what it is."""
    place = session.place
    commits = place.keys("commits/")
    log = session.log()
    maps = [c["seq"] for c in log if c["kind"] in ("anchor", "compact", "merge", "manifest")]
    deltas = [k for k in place.keys("deltas/") if "_from_" not in k]
    merged = [k for k in place.keys("deltas/") if "_from_" in k]
    anchors = place.keys("anchors/")
    found = {
        "newest commit": commits[-1], "commit before": commits[-2], "early commit": commits[1],
        "commit in the way": commits[len(commits) // 2],
        "newest delta": deltas[-1], "old delta": deltas[0], "delta in the way": deltas[4],
        "first anchor": anchors[0], "last anchor": anchors[-1],
        "hint": "latest", "run record": "format.json",
    }
    if merged:
        found["merged delta"] = merged[-1]
    for seq in maps[-1:]:
        found["manifest"] = next(k for k in commits if k.endswith(f"{seq:020}"))
    return found


@pytest.mark.parametrize("damages, replicas", [
    (("flip middle", "flip last", "cut", "delete"), ("fresh", "behind")),
    pytest.param(tuple(DAMAGES), ("fresh", "behind", "current"), marks=pytest.mark.slow)],
    ids=["some", "all"])
def test_every_damage_ends_in_a_state_of_the_trainer(origin, tmp_path, damages, replicas):
    top, session = origin
    known = [st.load(path)[0] for path in session.states.values()]
    outcomes = {}
    for (what, key), how in itertools.product(victims(session).items(), damages):
        place = tmp_path / "bucket"
        shutil.copytree(top / "bucket", place)
        DAMAGES[how](place / key)
        for name in replicas:
            replica = tmp_path / name
            if name != "fresh":
                shutil.copytree(top / name, replica)
            done = session.try_pull_at(place, replica)
            case = (what, how, name, done)
            assert done.code in (0, DAMAGED, FORKED, GAP, 10, 18), case
            told = json.loads(done.out.splitlines()[-1])
            outcomes[what, how, name] = (done.code, told.get("step"))
            if done.code == 0:
                if told["has_state"]:
                    assert session.holds(replica, told["step"]), case
                else:
                    assert folder_tensors(replica) == {}, case
            else:
                # Where it was, or some steps on the way: never between two.
                held = folder_tensors(replica)
                assert any(held == state for state in known) or (name == "fresh" and not held), case
                assert done.err.strip(), case
            shutil.rmtree(replica, ignore_errors=True)
        shutil.rmtree(place)
    must_converge(outcomes, damages, replicas)


def must_converge(outcomes, damages, replicas):
    """Where another way leads to the newest step, it is taken."""
    newest = (0, STEPS - 1)
    for how in damages:
        for name in replicas:
            assert outcomes["hint", how, name] == newest, (how, name)
        for what in ("old delta", "first anchor"):
            assert outcomes[what, how, "fresh"] == newest, (what, how)
        assert outcomes["delta in the way", how, "behind"] == newest, how
        if ("merged delta", how, "behind") in outcomes:
            assert outcomes["merged delta", how, "behind"] == newest, how


def test_damage_that_is_undone_is_no_more(origin, tmp_path):
    """A follower that stopped before a bad object goes on when it is good again."""
    top, session = origin
    place = tmp_path / "bucket"
    shutil.copytree(top / "bucket", place)
    replica = tmp_path / "behind"
    shutil.copytree(top / "behind", replica)
    spoiled = [place / key for key in session.place.keys("anchors/") + session.place.keys("deltas/")]
    kept = {path: path.read_bytes() for path in spoiled}
    for path in spoiled:
        flip(0.5)(path)
    done = session.try_pull_at(place, replica)
    assert done.code in (DAMAGED, GAP), done
    assert session.holds(replica, 3)
    for path, data in kept.items():
        path.write_bytes(data)
    assert session.try_pull_at(place, replica).code == 0
    assert session.holds(replica, STEPS - 1)


@pytest.mark.parametrize("content", [b"", bytes(4096), None])
def test_torn_fetched_file_is_fetched_again(origin, tmp_path, content):
    """What a power cut left under the name of a fetched object is not believed."""
    top, session = origin
    replica = tmp_path / "behind"
    shutil.copytree(top / "behind", replica)
    fetched = replica / ".wisp" / "scratch" / "fetched"
    fetched.mkdir(parents=True, exist_ok=True)
    for key in session.place.keys("anchors/") + session.place.keys("deltas/"):
        data = (session.place.objects / key).read_bytes()
        torn = data[:-64] + bytes(64) if content is None else content
        (fetched / hashlib.sha256(data).hexdigest()).write_bytes(torn)
    session.follows(replica, STEPS - 1)


def test_scrub_names_what_is_damaged(origin, tmp_path):
    top, session = origin
    for what, key in victims(session).items():
        if what in ("hint", "run record"):
            continue
        place = tmp_path / what.replace(" ", "_")
        shutil.copytree(top / "bucket", place)
        flip(0.5)(place / key)
        done = session.run_at(place, "scrub")
        assert done.code in (DAMAGED, FORKED), (what, done)
        name = key.split("/")[-1].lstrip("0")
        assert name in done.out + done.err, (what, key, done)
        shutil.rmtree(place)
