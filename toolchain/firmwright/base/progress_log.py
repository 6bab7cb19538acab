"""Progress of long loops as log messages, which a command line shows or not."""

import logging
import time
from collections.abc import Callable

_PERIOD_S = 1.0


class ProgressLog:
    """The messages of a loop over `total` items, at most one per second.

    They contain "3 of 10", from which the command line computes the time left.
    """

    def __init__(
        self,
        log: logging.Logger,
        what: str,
        total: int,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._what = what
        self._total = total
        self._clock = clock
        self._shown_s = clock()

    def show(self, done: int) -> None:
        """Log that `done` items are complete, unless a message was just logged."""
        now_s = self._clock()
        if now_s - self._shown_s >= _PERIOD_S:
            self._shown_s = now_s
            self._log.info("%s %d of %d", self._what, done, self._total)
