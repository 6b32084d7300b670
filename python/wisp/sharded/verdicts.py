"""What rank 0 made of each step, and what a rank does about it."""

from __future__ import annotations

from .. import _native
from ..errors import UnavailableError, WrongBaseError
from .key_store import KeyStore
from .round_messages import Committed, Refused, Verdict, parse_verdict, write_message

__all__ = ["Verdicts"]


class Verdicts:
    """Rank 0 says them; the other ranks read them, and move their blocks accordingly.

    landing: the state of a step that may have been committed, though the answer was lost.
    lost: the blocks here are not what they should be.
    unseen: a round whose verdict this rank has missed.
    closed: on rank 0, the last round that it gave the verdict on.
    """

    def __init__(self, keys: KeyStore, writer: _native.ShardWriter) -> None:
        self.landing: str | None = None
        self.lost = False
        self.unseen: int | None = None
        self.closed = 0
        self._keys = keys
        self._writer = writer

    def say(self, number: int, verdict: Verdict, *, closing: bool = True) -> None:
        """closing: no earlier round is left that ranks may still take part in."""
        self._keys.put(f"{number}/verdict", write_message(verdict))
        if closing:
            self.closed = number
            self._keys.put("closed", str(number).encode())

    def catch_up(self) -> None:
        """Acts on a verdict that this rank missed; it was given before the next call."""
        if self.unseen is not None:
            self.read(self.unseen)

    def read(self, number: int) -> Verdict | None:
        """Acts on the verdict of a round that this rank delivered a manifest for."""
        told = self._keys.get(f"{number}/verdict")
        self.unseen = None
        if told is None:
            return None
        verdict = parse_verdict(told)
        if isinstance(verdict, Committed):
            self._writer.advance(verdict.report.state)
        else:
            self.landing = verdict.landing
            if self.landing is None:
                self._writer.drop()
        return verdict

    def raise_refusal(self, key: str) -> None:
        """Raises why rank 0 refused a step, if the verdict under this key is a refusal."""
        told = self._keys.get(key)
        if told is not None:
            self.required(parse_verdict(told))

    def required(self, verdict: Verdict | None) -> Committed:
        """The verdict of a step that was committed; raises why it was not."""
        if isinstance(verdict, Refused):
            self.lost = self.lost or verdict.failure.error_kind == WrongBaseError.kind
            raise verdict.failure.as_exception()
        if verdict is None:
            raise UnavailableError("the verdict on this step is gone; the next step brings it")
        return verdict
