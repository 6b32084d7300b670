"""Who listens to a host's feed. Telling them something never waits for any of them."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import deque

__all__ = ["FeedReader"]

#: What may wait for one reader, behind the message that is being sent. A reader that was let go
#: gets a snapshot when it comes back, so that nothing is lost but this.
LARGEST_LAG = 16 << 20


class FeedReader:
    """One connection, and what was told to it that it has not taken yet."""

    def __init__(self, connection: socket.socket) -> None:
        self.label = ""  #: of the rank at the other end, once it has said so
        self._connection = connection
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._over = False
        self._sender = threading.Thread(target=self._send, name="wisp-tell", daemon=True)
        self._sender.start()

    @property
    def name(self) -> str:
        """For people."""
        size = struct.calcsize("3i")
        raw = self._connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        process = f"process {struct.unpack('3i', raw)[0]}"
        return f"{process} (rank {self.label})" if self.label else process

    def tell(self, line: bytes) -> bool:
        """At once, whatever the reader does. False: it has fallen too far behind to be told."""
        with self._changed:
            if self._over:
                return True  # it has gone by itself
            if self._waiting and self._waiting_bytes + len(line) > LARGEST_LAG:
                return False
            self._waiting.append(line)
            self._waiting_bytes += len(line)
            self._changed.notify()
            return True

    def let_go(self) -> None:
        """Ends the connection; a reader that still lives notices, and comes back."""
        with self._changed:
            self._over = True
            self._waiting.clear()
            self._changed.notify()
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """let_go(), and gives back what it holds."""
        self.let_go()
        self._sender.join()  # nothing keeps it: what it sends to is shut
        self._connection.close()

    def _send(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._over)
                if self._over:
                    return
                line = self._waiting.popleft()
                self._waiting_bytes -= len(line)
            try:
                self._connection.sendall(line)
            except OSError:
                self.let_go()
                return
