"""The rollout servers of a training: brought to each step that it publishes."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from ..engine.driver import Report
from ..errors import UnavailableError

__all__ = ["ServerDriver", "ServerSwitch"]

logger = logging.getLogger("wisp")

#: Between two tries when no server takes a step.
_RETRY_SECONDS = 2.0


class ServerDriver(Protocol):
    """What a ServerSwitch needs of a wisp.engine.Driver."""

    def update(self, step: int, *, state: str = "") -> Sequence[Report]:
        """All servers to `step`; what became of it on each."""

    def close(self) -> None:
        """Lets go of the servers."""


class ServerSwitch:
    """Has servers switch to a step, and waits until one has.

    make_driver: makes what drives them, of the run's address; of the driver's reports between two
      steps note() is to be told.
    patience: seconds to wait for one server to take a step if none does.
    """

    def __init__(self, make_driver: Callable[[str], ServerDriver], *, patience: float) -> None:
        self.make_driver = make_driver
        #: What became of the newest step on each server.
        self.reports: list[Report] = []
        self._patience = patience
        self._driver: ServerDriver | None = None
        self._behind: dict[str, str] = {}
        self._step: int | None = None

    def switch_to(self, run: str, step: int, state: str) -> None:
        """Returns when each server is there or left behind; UnavailableError when all are."""
        self._step = step
        if self._driver is None:
            # A folder by its whole path: the servers run elsewhere.
            self._driver = self.make_driver(run if "://" in run else os.path.abspath(run))
        deadline = time.monotonic() + self._patience
        waiting = False
        while True:
            self.reports = list(self._driver.update(step, state=state))
            for report in self.reports:
                self.note(report)
            if any(report.ok for report in self.reports):
                return
            left = deadline - time.monotonic()
            if left <= 0:
                causes = "; ".join(f"{r.url}: {r.error}" for r in self.reports)
                raise UnavailableError(
                    f"no server took step {step} within {self._patience:g} s ({causes}). "
                    "Start one, or let the training wait longer for it with patience="
                )
            if not waiting:
                logger.warning("no server takes step %s; training waits for one", step)
                waiting = True
            threading.Event().wait(min(left, _RETRY_SECONDS))

    def note(self, report: Report) -> None:
        """Logs once that a server is behind, and once that it is back."""
        cause = self._behind.get(report.url)
        if report.ok:
            if self._behind.pop(report.url, None) is not None:
                logger.warning("%s is back and serves step %s", report.url, report.served)
        elif cause != report.error_kind:
            self._behind[report.url] = report.error_kind
            logger.warning(
                "%s does not serve step %s: %s. It is brought up to date when it is back",
                report.url, self._step, report.error,
            )  # fmt: skip

    def close(self) -> None:
        """Lets go of the servers, which serve on; the next step connects to them again."""
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.close()
