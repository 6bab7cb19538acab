"""Time limits of an emulator on a busy computer.

An emulator that gets a tenth of a processor answers ten times as late. By the real time
it would seem to hang, and requests would be repeated that wait in its input.
"""

import time
from collections.abc import Callable
from typing import Final

from firmwright.device.transport import Clock

SLOWEST: Final = 10
"""The real time may be this multiple of an emulator's processor time."""


class EmulatorClock:
    """Seconds that an emulator was given, or a tenth of the real time if that is more.

    `used_s` returns its processor time, None if that is unknown: then seconds are real.
    They are never ahead of the real time, and go on for an emulator that hangs.
    """

    def __init__(
        self, used_s: Callable[[], float | None], clock: Clock = time.monotonic
    ) -> None:
        self._used_s = used_s
        self._clock = clock
        self._elapsed_s = 0.0
        self._last_real_s = clock()
        self._last_used_s = used_s() or 0.0

    def __call__(self) -> float:
        real_s, used_s = self._clock(), self._used_s()
        passed_s = real_s - self._last_real_s
        if used_s is not None:
            given_s = max(used_s - self._last_used_s, passed_s / SLOWEST)
            passed_s = min(passed_s, given_s)
            self._last_used_s = used_s
        self._last_real_s = real_s
        self._elapsed_s += passed_s
        return self._elapsed_s
