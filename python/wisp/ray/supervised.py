"""A server that ends with the actor that started it, however that ends.

usage: python -m wisp.ray.supervised COMMAND...    until its standard input ends
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading

_PR_SET_PDEATHSIG = 1
_GRACE = 10.0  # seconds between being asked to end and being ended


def _end_with_parent() -> None:
    """Asked of the kernel by the server itself, for the case that this process is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def main(command: list[str]) -> int:
    """The command's status."""
    server = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_end_with_parent
    )

    def end_with_actor() -> None:
        while os.read(0, 4096):
            pass
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(_GRACE)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)

    threading.Thread(target=end_with_actor, daemon=True).start()
    status = server.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)  # its ranks, if it died before them
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
