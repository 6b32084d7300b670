"""A full disk on either side: exit code 17, the old state kept, and on it goes with room."""

import json

import pytest

from checkpoints import folder_tensors
from session import DISK_FULL, Place, Session

KILOBYTE = 1024


def fill(disk, leave):
    """Takes all the room of a disk but a little; unlink() what this answers to give it back."""
    filler = disk / "filler"
    with open(filler, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(64 * KILOBYTE))
        except OSError:
            pass
        size = max(0, file.tell() - leave)
        file.truncate(size)
    return filler


def is_refused(done, *texts):
    assert done.code == DISK_FULL, done
    assert json.loads(done.out.splitlines()[-1])["exit_code"] == DISK_FULL
    for text in texts:
        assert str(text) in done.err, done.err


@pytest.fixture
def session(tmp_path, folder):
    """600 kB of weights, and a second step that changes all of them."""
    made = Session(tmp_path, folder, seed=31, layers=4, width=192).init()
    made.publish(0)
    made.scramble(1)
    return made


@pytest.mark.parametrize("leave", [0, 64 * KILOBYTE, 500 * KILOBYTE])
def test_replica_without_room_keeps_its_state(session, small_disk, tmp_path, leave):
    disk = small_disk("disk", 6)
    replica = disk / "replica"
    session.follows(replica, 0)
    filler = fill(disk, leave)
    session.publish(1)
    is_refused(session.try_pull(replica), disk)
    assert session.holds(replica, 0)
    assert session.pull(replica, "--until-step", 0)["step"] == 0
    filler.unlink()
    session.follows(replica, 1)


def test_first_pull_without_room_leaves_nothing_that_looks_like_weights(session, small_disk):
    disk = small_disk("disk", 6)
    filler = fill(disk, 300 * KILOBYTE)
    is_refused(session.try_pull(disk / "replica"), disk)
    assert folder_tensors(disk / "replica") == {}
    filler.unlink()
    session.follows(disk / "replica", 0)


@pytest.mark.parametrize("leave", [0, 64 * KILOBYTE, 300 * KILOBYTE])
def test_bucket_without_room_keeps_what_it_has(small_disk, tmp_path, leave):
    disk = small_disk("disk", 6)
    session = Session(tmp_path, Place(str(disk / "run"), disk / "run"), seed=32, layers=4,
                      width=192).init()
    session.publish(0)
    session.scramble(1)
    filler = fill(disk, leave)
    before, keys = session.log(), session.place.keys()
    is_refused(session.try_publish(1), disk)
    assert session.log() == before and session.place.keys() == keys
    session.follows(tmp_path / "replica", 0)
    filler.unlink()
    assert session.publish(1)["kind"] == "delta"
    session.follows(tmp_path / "replica", 1)
    session.is_sound()


@pytest.mark.parametrize("leave", [0, 64 * KILOBYTE])
def test_baseline_without_room_publishes_nothing_by_halves(session, small_disk, tmp_path, leave):
    disk = small_disk("disk", 6)
    session.baseline = disk / "baseline"
    session.publish(0, "--take-over")
    filler = fill(disk, leave)
    before = session.published()
    is_refused(session.try_publish(1), disk)
    assert session.published() == before
    filler.unlink()
    assert session.publish(1)["kind"] == "delta"
    session.follows(tmp_path / "replica", 1)
    session.is_sound()
