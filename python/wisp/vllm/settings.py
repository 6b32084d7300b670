"""What a server is told about the run: by request, by `--additional-config`, or by environment."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from vllm.distributed.weight_transfer.base import (
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)

from ..engine.feed.feed_files import FeedSettings
from ..engine.plan.coverage import Allowed
from ..errors import InvalidError
from ..runs import trust_of

if TYPE_CHECKING:
    from vllm.config import VllmConfig

__all__ = [
    "ALLOW_INIT",
    "InitInfo",
    "UpdateInfo",
    "configured",
    "may_strangers_init",
    "same_run",
]

_MODES = ("push", "self")
ALLOW_INIT = "WISP_ALLOW_INIT"
#: The settings that the environment may give, and how their text is read.
_VARIABLES: dict[str, Callable[[str], Any]] = {
    "run": str, "trust": lambda text: text.split(","), "mode": str, "poll": float, "base": str,
    "scratch": str, "replica_id": str, "min_serial": int, "run_id": str,
    "allow_missing": lambda text: text.split(","), "allow_unused": lambda text: text.split(","),
}  # fmt: skip


@dataclass
class InitInfo(WeightTransferInitInfo):  # type: ignore[misc]
    """The run to follow.

    trust: public keys (texts or files on the server); with any, only what they signed is accepted.
    mode: "push" (somebody tells when to switch), "self" (the server does, as soon as it can).
    base: a checkpoint to start from instead of fetching one; the served folder if None.
    allow_missing, allow_unused: names or patterns of what may be without a counterpart: tensors of
      the served model that the run does not write, and of the run that the model does not hold.
    """

    run: str
    trust: list[str] = field(default_factory=list)
    mode: str = "push"
    poll: float = 1.0
    base: str | None = None
    scratch: str | None = None
    replica_id: str = ""
    timeout: float = 300.0  #: how long a stock update waits for its step
    recompute: bool = False  #: in self mode: as in POST /wisp/update
    min_serial: int = 0  #: certificates with a lower serial are revoked
    run_id: str = ""  #: the identity of the run that must be there; empty: whichever is
    allow_missing: list[str] = field(default_factory=list)
    allow_unused: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not isinstance(self.run, str) or not self.run:
            raise ValueError("init_info needs `run`, the address of the run to follow")
        if self.mode not in _MODES:
            raise ValueError(f"mode is {self.mode!r}; it must be one of {', '.join(_MODES)}")
        if isinstance(self.trust, str):
            self.trust = [self.trust]
        for name in ("allow_missing", "allow_unused"):
            told = getattr(self, name)
            told = [told] if isinstance(told, str) else list(told)
            if not all(isinstance(entry, str) and entry.strip("*?") for entry in told):
                raise ValueError(f"{name} names tensors, one by one or by a pattern, not {told!r}")
            setattr(self, name, told)
        # Known to be wrong here, and not in the feed later.
        believed = trust_of(self.trust, self.min_serial, self.run_id or None)
        self.min_serial, self.run_id = believed.min_serial, believed.run_id

    def feed(self, served: str | None) -> FeedSettings:
        """For the host's feed. Paths are made absolute: it runs on its own."""
        run = self.run if "://" in self.run else os.path.abspath(self.run)
        trust = [os.path.abspath(key) if os.path.exists(key) else key for key in self.trust]
        base = self.base or (served if served and os.path.isdir(served) else None)
        return FeedSettings(run, trust, self.poll, base, self.scratch, self.min_serial, self.run_id)

    @property
    def allowed(self) -> Allowed:
        """What may be without a counterpart."""
        return Allowed(tuple(sorted(self.allow_missing)), tuple(sorted(self.allow_unused)))

    def allowing(self, other: InitInfo) -> InitInfo:
        """The same, and what the other allows beyond it."""
        return replace(
            self, allow_missing=sorted({*self.allow_missing, *other.allow_missing}),
            allow_unused=sorted({*self.allow_unused, *other.allow_unused}),
        )  # fmt: skip

    def is_laxer_than(self, other: InitInfo) -> bool:
        """Whether this believes what the other would not."""
        return (
            bool(other.trust and not self.trust)
            or self.min_serial < other.min_serial
            or bool(other.run_id and other.run_id != self.run_id)
        )

    def as_dict(self) -> dict[str, Any]:
        """As a request carries it."""
        return asdict(self)


@dataclass
class UpdateInfo(WeightTransferUpdateInfo):  # type: ignore[misc]
    """step: the one to switch to; None: the newest that is staged."""

    step: int | None = None


def configured(vllm_config: VllmConfig) -> InitInfo | None:
    """What the command line or the environment says; None: a request will."""
    told = vllm_config.additional_config
    told = told.get("wisp") if isinstance(told, dict) else None
    values: dict[str, Any] = dict(told or {})
    for name, read in _VARIABLES.items():
        variable = os.environ.get(f"WISP_{name.upper()}")
        if variable and name not in values:
            try:
                values[name] = read(variable)
            except ValueError:
                raise InvalidError(f"WISP_{name.upper()} is a number, not {variable!r}") from None
    if values and "run" not in values:
        names = ", ".join(f"WISP_{n.upper()}" if n in _VARIABLES else n for n in sorted(values))
        raise InvalidError(
            f"{names}: set for no run, and a run that a request names would be followed without; "
            "set WISP_RUN as well (or `run` in --additional-config), or leave all of it to POST "
            "/wisp/init"
        )
    if not values:
        return None
    try:
        return InitInfo(**values)
    except TypeError as error:
        raise InvalidError(
            f"the settings of wisp in --additional-config are wrong: {error}"
        ) from error


def may_strangers_init() -> bool:
    """Whether the operator lets anybody who reaches a server without a key name the run."""
    return os.environ.get(ALLOW_INIT, "").lower() in ("1", "true", "yes")


def same_run(one: str, other: str) -> bool:
    """Whether two addresses are the same place."""
    plain = [a.removeprefix("file://").rstrip("/") for a in (one, other)]
    return plain[0] == plain[1] or os.path.abspath(plain[0]) == os.path.abspath(plain[1])
