"""A program at a real pseudo-terminal, as a person sees it."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

import run_wisp

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\x1b\][^\x07]*\x07")


class Terminal:
    """`screen` is all that was written to it, escapes included."""

    def __init__(self, *command, env=None, rows=24, columns=120, cwd=None):
        settings = run_wisp.environment({"TERM": "xterm", "LC_ALL": "C.UTF-8", **(env or {})})
        settings = {name: value for name, value in settings.items() if value is not None}
        self.pid, self.keys = pty.fork()
        if self.pid == 0:
            try:
                if cwd:
                    os.chdir(cwd)
                os.execvpe(str(command[0]), [str(word) for word in command], settings)
            finally:
                os._exit(127)
        fcntl.ioctl(self.keys, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.bytes = b""
        self.code = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.keys)

    @property
    def screen(self):
        return self.bytes.decode(errors="replace")

    @property
    def text(self):
        return ESCAPES.sub("", self.screen)

    def type(self, keys):
        os.write(self.keys, keys.encode())

    def _read(self, seconds):
        if not select.select([self.keys], [], [], seconds)[0]:
            return True
        try:
            more = os.read(self.keys, 65536)
        except OSError:  # the last program there has ended
            return False
        self.bytes += more
        return bool(more)

    def until(self, pattern):
        """Waits until what was written, without escapes, holds this."""
        return self.until_true(lambda text: re.search(pattern, text, re.DOTALL), pattern)

    def until_true(self, holds, what):
        deadline = time.monotonic() + run_wisp.PATIENCE
        while not holds(self.text):
            goes_on = self._read(1)
            assert goes_on or holds(self.text), f"no {what!r} in: {self.text}"
            assert time.monotonic() < deadline, f"no {what!r} in: {self.text}"
        return self.text

    def goes_on(self):
        """False once the last program there has ended; waits a second for something to be written."""
        return self._read(1)

    def end(self):
        """Waits until the program ends by itself; what it wrote, and its exit code in `code`."""
        deadline = time.monotonic() + run_wisp.PATIENCE
        while self._read(1):
            assert time.monotonic() < deadline, f"it does not end: {self.text}"
        self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.screen


def at_terminal(*arguments, **options):
    """wisp, to its end."""
    with Terminal(run_wisp.BINARY, *arguments, **options) as terminal:
        terminal.end()
        return terminal
