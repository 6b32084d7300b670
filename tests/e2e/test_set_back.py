"""A bucket that is set back, or that stands still, while somebody says it is the newest."""

import pytest

from run_wisp import snapshot
from session import FORKED, UNAVAILABLE


@pytest.fixture
def set_back(session, tmp_path):
    """Published to step 3 and followed; then the bucket is as it was at step 1."""
    for step in range(2):
        session.publish(step)
    session.place.copy_to(tmp_path / "copy")
    for step in range(2, 4):
        session.publish(step)
    session.follows(tmp_path / "replica", 3)
    session.place.set_back(tmp_path / "copy")
    return session


def weights(replica):
    return {name: digest for name, digest in snapshot(replica).items() if ".wisp" not in name}


def test_replica_does_not_go_back(set_back, tmp_path):
    replica = tmp_path / "replica"
    before = weights(replica)
    for _ in range(2):
        done = set_back.try_pull(replica)
        assert done.code == FORKED and "--accept-rewind" in done.err, done
        assert weights(replica) == before and set_back.holds(replica, 3)


def test_accepted_it_goes_on_from_there(set_back, tmp_path):
    replica = tmp_path / "replica"
    assert set_back.pull(replica, "--accept-rewind")["step"] == 1
    assert set_back.holds(replica, 1)
    set_back.baseline = tmp_path / "new-baseline"
    set_back.publish(4)
    set_back.follows(replica, 4)


def test_history_written_anew_is_not_taken_for_the_old_one(set_back, tmp_path):
    """As many commits as before, but others: length alone proves nothing."""
    set_back.baseline = tmp_path / "new-baseline"
    for step in range(12, 18):
        set_back.publish(step)
    done = set_back.try_pull(tmp_path / "replica")
    assert done.code == FORKED and "two histories" in done.err, done
    assert set_back.holds(tmp_path / "replica", 3)


def test_publisher_does_not_build_on_a_bucket_that_was_set_back(set_back):
    done = set_back.try_publish(4)
    assert done.code == FORKED, done


def test_replica_of_another_run_at_the_same_address_stops(session, tmp_path):
    session.publish(0)
    session.follows(tmp_path / "replica", 0)
    session.place.remove()
    session.baseline = tmp_path / "new-baseline"
    session.init().publish(1)
    done = session.try_pull(tmp_path / "replica")
    assert done.code == FORKED, done
    assert session.holds(tmp_path / "replica", 0)


def test_frozen_bucket_is_told_by_its_age(session, tmp_path):
    session.publish(0)
    replica = tmp_path / "replica"
    for _ in range(2):
        done = session.try_pull(replica, "--max-staleness", "1ms")
        assert done.code == UNAVAILABLE and "stale" in done.err, done
    assert session.pull(replica, "--max-staleness", "1h")["stale"] is False
    assert session.holds(replica, 0)


def test_frozen_bucket_is_told_by_the_trainer_s_word(session, tmp_path):
    session.publish(0, "--expires", "1ms")
    replica = tmp_path / "replica"
    for _ in range(2):
        done = session.try_pull(replica)
        assert done.code == UNAVAILABLE and "stale" in done.err, done
    assert session.holds(replica, 0)
    session.publish(1, "--expires", "1h")
    assert session.pull(replica)["stale"] is False
