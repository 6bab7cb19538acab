"""A client of MLPerf Tiny's text protocol: answers end with `m-ready`, times are us."""

import re
import time
from dataclasses import dataclass

from firmwright.base.closeable import Closeable
from firmwright.base.errors import DeviceError, DeviceTimeoutError
from firmwright.device.transport import Transport

READY = "m-ready"
CHUNK_BYTES = 38
"""The number of sample bytes in a command, which has at most 79 characters."""
_GREETING_EVERY_S = 1.0
_QUIET_S = 0.1
_GREETINGS = 10
_LAP = "m-lap-us-"
_ANSWER_MAX_BYTES = 1 << 20
"""The longest answer prints a sample, with three characters for each byte."""


@dataclass(frozen=True, slots=True)
class InferenceTiming:
    """Total time of `count` inferences, and the results of the last one."""

    count: int
    microseconds: int
    results: tuple[float, ...]


class MlperfSession(Closeable):
    """A session with benchmark firmware; `timeout_s` applies to each command."""

    def __init__(self, transport: Transport, *, timeout_s: float = 300.0) -> None:
        self._transport = transport
        self._timeout_s = timeout_s
        self._received = bytearray()
        try:
            self._greet()
        except BaseException:
            transport.close()
            raise

    def close(self) -> None:
        self._transport.close()

    def command(self, text: str) -> tuple[str, ...]:
        """Send a command and return the answer's lines; DeviceError if one is an error.

        The lines of an error begin with `e-`.
        """
        self._transport.write(f"{text}%".encode())
        lines: list[str] = []
        deadline = time.monotonic() + self._timeout_s
        size = 0
        while (line := self._line(deadline, text)) != READY:
            lines.append(line)
            size += len(line) + 2
            self._require_size(size, text)
        failed = [line for line in lines if line.startswith("e-")]
        if failed:
            raise DeviceError(f"the firmware answers {failed[0]}", where=text)
        return tuple(lines)

    def value(self, text: str, before: str) -> str:
        """Return what follows `before`: a value in brackets or the rest of a line."""
        return _value(self.command(text), before, text)

    def load(self, sample: bytes) -> None:
        self.command(f"db load {len(sample)}")
        said: tuple[str, ...] = ()
        for at in range(0, len(sample), CHUNK_BYTES):
            said = self.command(f"db {sample[at : at + CHUNK_BYTES].hex()}")
        if "m-load-done" not in said:
            what = "the firmware did not take the whole sample."
            raise DeviceError(what, where="db load")

    def infer(self, count: int, warmups: int) -> InferenceTiming:
        text = f"infer {count} {warmups}"
        lines = self.command(text)
        laps = [line.removeprefix(_LAP) for line in lines if line.startswith(_LAP)]
        if len(laps) != 2:
            what = f"the answer has {len(laps)} time stamps, not two."
            raise DeviceError(what, where=text)
        numbers = _value(lines, "m-results-", text)
        try:
            begin, end = map(int, laps)
            results = tuple(map(float, numbers.rstrip(",").split(",")))
        except ValueError as error:
            what = "the answer has a number that is none."
            raise DeviceError(what, where=text) from error
        return InferenceTiming(count, end - begin, results)

    def _greet(self) -> None:
        """Ask for the name until the firmware has started."""
        patience_s = min(_GREETING_EVERY_S, self._timeout_s)
        for _ in range(_GREETINGS):
            self._transport.write(b"name%")
            deadline = time.monotonic() + patience_s
            try:
                while not self._line(deadline, "name").startswith("m-name-dut-"):
                    pass
            except DeviceTimeoutError:
                continue
            self._await_silence()
            return
        what = "no answer in the benchmark's protocol."
        hint = "flash firmware built with --firmware mlperf."
        raise DeviceTimeoutError(what, where=self._transport.name, hint=hint)

    def _await_silence(self) -> None:
        """Drop repeated answers to greetings."""
        deadline = time.monotonic() + self._timeout_s
        while self._transport.read(4096, _QUIET_S):
            if time.monotonic() >= deadline:
                what = "the firmware sends without an end."
                raise DeviceTimeoutError(what, where=self._transport.name)
        self._received.clear()

    def _require_size(self, size_bytes: int, doing: str) -> None:
        if size_bytes > _ANSWER_MAX_BYTES:
            what = f"an answer has more than {_ANSWER_MAX_BYTES:,} bytes."
            raise DeviceError(what, where=f"{self._transport.name}, {doing}")

    def _line(self, deadline: float, doing: str) -> str:
        searched = 0
        while (end := self._received.find(b"\n", searched)) < 0:
            searched = len(self._received)
            self._require_size(searched, doing)
            left = deadline - time.monotonic()
            if left <= 0:
                what = "the firmware did not answer in time."
                hint = "increase --timeout or reduce --iterations."
                where = f"{self._transport.name}, {doing}"
                raise DeviceTimeoutError(what, where=where, hint=hint)
            self._received += self._transport.read(4096, left)
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        return line.decode("ascii", "replace").strip("\r\0")


def _value(lines: tuple[str, ...], before: str, where: str) -> str:
    for line in lines:
        match = re.fullmatch(re.escape(before) + r"\[?([^\]]*)\]?", line)
        if match:
            return match[1]
    raise DeviceError(f"no {before} in the answer.", where=where)
