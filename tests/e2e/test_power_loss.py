"""The power goes: images of a disk taken at any instant of publish and follow, each used again.

An ext4 inside a file on btrfs; a reflink copy of that file is what a disk would hold had the machine
stopped right then. WISP_POWER_ROUNDS sets how many images are taken.
"""

import os
import random
import subprocess
import threading
import time

import pytest

from session import Place, Session

ROUNDS = int(os.environ.get("WISP_POWER_ROUNDS", 6))
OUTER_MEGABYTES, INNER_MEGABYTES = 320, 48


def command(*words):
    done = subprocess.run([str(w) for w in words], capture_output=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{words[0]}: {done.stderr.decode(errors='replace').strip()}")


class Disks:
    """The disk under test and copies of it; everything is unmounted at the end."""

    def __init__(self, top):
        self.top = top
        self.mounted = []
        self.image = top / "outer" / "disk.img"
        self.live = top / "live"

    def mount(self, image, at):
        at.mkdir()
        command("mount", "-o", "loop", image, at)
        self.mounted.append(at)

    def unmount(self, at):
        self.mounted.remove(at)
        command("umount", at)
        at.rmdir()

    def make(self):
        outer = self.top / "outer.img"
        with open(outer, "wb") as file:
            file.truncate(OUTER_MEGABYTES << 20)
        command("mkfs.btrfs", "-q", outer)
        self.mount(outer, self.top / "outer")
        with open(self.image, "wb") as file:
            file.truncate(INNER_MEGABYTES << 20)
        command("mkfs.ext4", "-q", "-F", self.image)
        self.mount(self.image, self.live)

    def copy(self, number):
        """What would be left had the power gone now."""
        command("cp", "--reflink=always", self.image, self.top / "outer" / f"cut_{number}.img")

    def open_copy(self, number):
        at = self.top / f"cut_{number}"
        self.mount(self.top / "outer" / f"cut_{number}.img", at)
        return at

    def end(self):
        for at in reversed(self.mounted):
            subprocess.run(["umount", "--lazy", at], check=False)


@pytest.fixture
def disks(tmp_path):
    made = Disks(tmp_path)
    try:
        made.make()
    except OSError as error:
        made.end()
        pytest.skip(f"no disk images here: {error}")
    yield made
    made.end()


def place_on(disk):
    return Place(str(disk / "run"), disk / "run")


class Life:
    """Publishes and follows on the live disk until told to stop."""

    def __init__(self, session, replica):
        self.session, self.replica = session, replica
        self.published = self.followed = 0
        self.stopping = False
        self.error = None
        self.thread = threading.Thread(target=self.live)

    def live(self):
        try:
            step = 0
            while not self.stopping:
                step += 1
                self.session.publish(step, *(["--anchor-every", 1] if step % 7 == 0 else []))
                self.published = step
                self.session.follows(self.replica, step)
                self.followed = step
        except BaseException as error:  # noqa: BLE001
            self.error = error


def test_whatever_the_disk_held_can_be_gone_on_with(disks, tmp_path):
    session = Session(tmp_path, place_on(disks.live), seed=91, layers=3, width=128).init()
    session.baseline = disks.live / "baseline"
    session.publish(0)
    session.follows(disks.live / "replica", 0)
    life = Life(session, disks.live / "replica")
    life.thread.start()
    chance = random.Random(92)
    promised = []
    for number in range(ROUNDS):
        time.sleep(chance.uniform(0.05, 0.5))  # any instant will do
        promised.append((life.published, life.followed))
        disks.copy(number)
    life.stopping = True
    life.thread.join()
    if life.error:
        raise life.error
    for number, (published, followed) in enumerate(promised):
        go_on(session, disks, number, published, followed)


def go_on(session, disks, number, published, followed):
    at = disks.open_copy(number)
    session.place, session.baseline = place_on(at), at / "baseline"
    newest = max(c["step"] for c in session.published())
    assert newest >= published, "what was said to be committed is there"
    stands = session.pull(at / "replica", "--until-step", 0)
    assert stands["step"] >= followed, "what was said to be applied is applied"
    assert session.holds(at / "replica", stands["step"])
    session.follows(at / "replica", newest)
    session.is_sound()
    after = newest + 1000 * (number + 1)
    session.publish(after)
    session.follows(at / "replica", after)
    disks.unmount(at)
