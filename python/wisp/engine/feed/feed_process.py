"""The process of a host's feed.

usage: python -m wisp.engine.feed.feed_process FOLDER    with FeedSettings as JSON on standard input
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import sys
from pathlib import Path

from . import feed_leftovers
from .feed_files import FeedSettings
from .host_feed import Feed


def main() -> int:
    """Feeds, if nobody else does."""
    folder = Path(sys.argv[1])
    settings = FeedSettings(**json.load(sys.stdin))
    lock = os.open(folder / "feed.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0
    # A rank that is bound to cores of its own passes that on, which is not meant for us.
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    feed_leftovers.clear(folder)
    with contextlib.suppress(OSError):
        feed_leftovers.sweep(folder.parent)
    # What the library has there it removes itself, unless this process is killed.
    os.environ["TMPDIR"] = str(feed_leftovers.make_scratch(folder))
    feed = Feed(folder, settings)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / ".feed.sock"))
        listener.listen(64)
        os.rename(folder / ".feed.sock", folder / "feed.sock")
        feed.serve(listener)
    feed_leftovers.remove_all(folder)
    return 0


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # its threads wait for what will not come
