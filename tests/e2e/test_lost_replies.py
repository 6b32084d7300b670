"""The commit arrives, its answer does not: the step is published once, and its writer finds out."""

import pytest

import proxies
from session import UNAVAILABLE, Session

COMMIT = "/commits/"


@pytest.fixture
def session(tmp_path, bucket):
    made = Session(tmp_path, bucket, seed=21).init()
    made.publish(0)
    return made


@pytest.fixture
def proxy(server):
    with proxies.RuledProxy(server.port) as started:
        yield started


def once(action, method, part):
    """A rule for the first request of a kind; the others pass."""
    left = [action]

    def rule(asked, path):
        return left.pop() if left and asked == method and part in path else "pass"
    return rule


def is_published_once(session, tmp_path, step):
    assert [c["step"] for c in session.published()] == list(range(step + 1))
    session.follows(tmp_path / "replica", step)
    session.is_sound()


@pytest.mark.parametrize("part", [COMMIT, "/deltas/", "/latest"])
def test_one_lost_answer_is_no_failure(session, proxy, tmp_path, part):
    proxy.rule = once("cut reply", "PUT", part)
    told = session.publish(1, place=session.place.via(proxy.endpoint))
    assert "cut reply" in [action for _, _, action in proxy.seen]
    assert told["step"] == 1 and told["kind"] == "delta"
    is_published_once(session, tmp_path, 1)


def test_first_answer_of_a_new_run_may_be_lost(tmp_path, bucket, proxy):
    """The fence that takes an empty run: losing its answer must not lock its writer out."""
    session = Session(tmp_path, bucket, seed=22).init()
    proxy.rule = once("cut reply", "PUT", COMMIT)
    session.publish(0, place=session.place.via(proxy.endpoint))
    session.publish(1)
    is_published_once(session, tmp_path, 1)


def test_killed_between_commit_and_answer_has_published(session, proxy, tmp_path):
    session.train(1)
    proxy.rule = once("hold reply", "PUT", COMMIT)
    process = session.begin(*session.call(1), place=session.place.via(proxy.endpoint))
    assert proxy.held.wait(60)
    process.kill()
    process.communicate()
    session.follows(tmp_path / "replica", 1)
    assert session.publish(1)["kind"] == "present"
    assert session.publish(2)["kind"] == "delta"
    is_published_once(session, tmp_path, 2)


def test_writer_killed_at_its_fence_is_not_locked_out(tmp_path, bucket, proxy):
    session = Session(tmp_path, bucket, seed=23).init()
    session.train(0)
    proxy.rule = once("hold reply", "PUT", COMMIT)
    process = session.begin(*session.call(0), place=session.place.via(proxy.endpoint))
    assert proxy.held.wait(60)
    process.kill()
    process.communicate()
    session.publish(0)
    session.publish(1)
    is_published_once(session, tmp_path, 1)


def test_writer_killed_at_a_rewind_is_not_locked_out(session, proxy, tmp_path):
    session.publish(5)
    session.train(3)
    proxy.rule = once("hold reply", "PUT", COMMIT)
    process = session.begin(*session.call(3), place=session.place.via(proxy.endpoint))
    assert proxy.held.wait(60)
    process.kill()
    process.communicate()
    assert session.publish(3)["kind"] == "present"
    session.publish(4)
    assert [c["step"] for c in session.published()] == [0, 5, 3, 4]
    session.follows(tmp_path / "replica", 4)
    session.is_sound()


@pytest.mark.slow
def test_link_that_dies_at_the_commit_leaves_it_to_the_next_start(session, proxy, tmp_path):
    """Every request after the commit is cut: the publisher cannot know, and says so."""
    dead = []

    def rule(method, path):
        if method == "PUT" and COMMIT in path:
            dead.append(path)
        return "cut reply" if dead else "pass"
    proxy.rule = rule
    done = session.try_publish(1, place=session.place.via(proxy.endpoint), timeout=300)
    assert done.code == UNAVAILABLE, done
    assert session.publish(1)["kind"] == "present"
    is_published_once(session, tmp_path, 1)


def test_follower_bears_with_cut_answers(session, proxy, tmp_path):
    for step in range(1, 4):
        session.publish(step)
    left = iter(range(10**6))
    proxy.rule = lambda method, path: "cut reply" if next(left) % 3 == 1 else "pass"
    told = session.pull(tmp_path / "replica", place=session.place.via(proxy.endpoint))
    assert told["step"] == 3 and session.holds(tmp_path / "replica", 3)
