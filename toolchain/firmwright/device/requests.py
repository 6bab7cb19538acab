"""Requests that arrive: one at a time, repeated until answered, refused, or out of time.

In: a transport of any quality, commands and payloads. Out: the payload of each answer. A request
is numbered, so the firmware carries it out at most once however often it hears it; an answer that
got lost is fetched again, not computed again. Large requests that keep getting lost are reported
as such (`LostError`), so that the caller can split them.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from dataclasses import dataclass

from firmwright.base.errors import DeviceError, DeviceTimeoutError
from firmwright.device.protocol import (
    KIND_ANSWER,
    KIND_DAMAGED,
    KIND_FAULT,
    Command,
    Fault,
    Frame,
    FrameReader,
    Status,
    encode_frame,
)
from firmwright.device.transport import Transport

_READ_BYTES = 65536
_SEQUENCES = 1 << 16

# After a damaged frame the sound one may still be under way; then the request is repeated.
_DAMAGE_GRACE_S = 0.005
# The wait before a request is repeated grows from the first to the last of these.
_FIRST_WAIT_S = 0.3
_LAST_WAIT_S = 2.0
_SPLIT_AFTER_LOSSES = 8

_REFUSALS = {
    Status.COMMAND: "it does not know the command",
    Status.SIZE: "the payload has the wrong size",
    Status.RANGE: "the index, offset or size lies outside",
    Status.NO_OUTPUT: "there was no run on the input as written: write the input and run first",
    Status.RUN: "the model's run failed",
    Status.UNSUPPORTED: "this image cannot do it",
    Status.IO: "its external memory cannot be read",
    Status.PARAMS: "its parameter block is not written completely",
}


class FaultError(DeviceError):
    """The processor faulted; `fault` has its registers."""

    def __init__(self, fault: Fault, *, where: str) -> None:
        super().__init__(
            f"{fault}.",
            where=where,
            hint="look pc up with addr2line in the ELF file, and check the stack's size.",
        )
        self.fault = fault


class RefusedError(DeviceError):
    """The firmware answered that it will not do it; `status` says why."""

    def __init__(self, command: Command, status: int, payload: bytes, *, where: str) -> None:
        known = status in Status.__members__.values()
        reason = _REFUSALS.get(Status(status), "") if known else ""
        super().__init__(
            f"the firmware refused {command.name.lower()}: {reason or f'status {status}'}.",
            where=where,
        )
        self.status = status
        self.payload = payload


class ForgottenError(DeviceError):
    """The firmware does not know the session: it restarted, or another host took over."""

    def __init__(self, *, where: str) -> None:
        super().__init__(
            "the firmware has forgotten this session: it restarted by itself, or another host "
            "took the link over.",
            where=where,
            hint="start the session again; if it repeats, suspect the power supply.",
        )


class LostError(DeviceTimeoutError):
    """A request was lost several times in a row and may be split into smaller ones."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long each kind of request is tried before it is an error."""

    hello_s: float = 20.0
    answer_s: float = 20.0
    run_s: float = 300.0


class RequestLine:
    """The numbered exchange of one session; not for two threads."""

    def __init__(
        self, transport: Transport, timeouts: Timeouts, session_number: int | None = None
    ) -> None:
        self._transport = transport
        self._timeouts = timeouts
        self._reader = FrameReader()
        self._received: deque[Frame | None] = deque()
        self._session = session_number or 0
        self._sequence = 0
        if session_number is None:
            self.renew()
        self.losses = 0

    def renew(self) -> None:
        """Takes a new session number: the next request must be a hello."""
        self._session = 1 + secrets.randbelow(_SEQUENCES - 1)
        self._sequence = 0

    def request(self, command: Command, payload: bytes = b"", *, may_split: bool = False) -> bytes:
        """The answer's payload.

        Raises RefusedError, ForgottenError, FaultError, DeviceTimeoutError, DeviceError if the
        other side is gone, and LostError after some losses in a row if `may_split`.
        """
        self._sequence = (self._sequence + 1) % _SEQUENCES
        frame = Frame(self._session, self._sequence, command, 0, payload)
        answer = self._exchange(frame, command, may_split)
        match answer.status:
            case Status.OK:
                return answer.payload
            case Status.SESSION:
                raise ForgottenError(where=self._transport.name)
            case status:
                raise RefusedError(command, status, answer.payload, where=self._transport.name)

    def _exchange(self, frame: Frame, command: Command, may_split: bool) -> Frame:
        deadline = time.monotonic() + self._patience_s(command)
        wait_s, losses, accepted = _FIRST_WAIT_S, 0, False
        encoded = encode_frame(frame)
        while True:
            self._transport.write(encoded)
            answer = self._await(frame, min(time.monotonic() + wait_s, deadline))
            if answer is not None and answer.status == Status.BUSY:
                accepted = True
                answer = self._await_run(frame, min(time.monotonic() + _LAST_WAIT_S, deadline))
            if answer is not None:
                return answer
            losses += 1
            self.losses += 1
            if time.monotonic() >= deadline:
                raise self._timed_out(command, accepted)
            if may_split and losses >= _SPLIT_AFTER_LOSSES:
                raise LostError("a request was lost several times.", where=self._transport.name)
            wait_s = min(wait_s * 1.5, _LAST_WAIT_S)

    def _patience_s(self, command: Command) -> float:
        match command:
            case Command.HELLO:
                return self._timeouts.hello_s
            case Command.RUN:
                # Also before the run is known to be accepted: that note may have been lost.
                return self._timeouts.run_s
            case _:
                return self._timeouts.answer_s

    def _await_run(self, frame: Frame, until: float) -> Frame | None:
        """Like `_await`; further notes that the run was accepted are passed over."""
        while True:
            answer = self._await(frame, until)
            if answer is None or answer.status != Status.BUSY:
                return answer

    def _await(self, request: Frame, until: float) -> Frame | None:
        """The answer to `request`; None if the time is over or something came damaged."""
        while True:
            while self._received:
                frame = self._received.popleft()
                if frame is None or frame.kind == KIND_DAMAGED:
                    until = min(until, time.monotonic() + _DAMAGE_GRACE_S)
                    continue
                if self._answers(frame, request):
                    return frame
            left_s = until - time.monotonic()
            if left_s <= 0:
                return None
            self._received.extend(self._reader.feed(self._transport.read(_READ_BYTES, left_s)))

    def _answers(self, frame: Frame, request: Frame) -> bool:
        """Whether a sound frame is the answer; late copies and other sessions' are not."""
        if frame.kind == KIND_FAULT and frame.session in (0, request.session):
            raise FaultError(Fault.decode(frame.payload), where=self._transport.name)
        return (
            frame.session == request.session
            and frame.sequence == request.sequence
            and frame.kind == request.kind | KIND_ANSWER
        )

    def _timed_out(self, command: Command, accepted: bool) -> DeviceTimeoutError:
        what, hint = {
            Command.HELLO: (
                "no firmware answered",
                "check that the board runs firmware of firmwright's, and the baud rate.",
            ),
            Command.RUN: (
                "the run was accepted but did not end" if accepted else "no answer to run",
                "a large model on a slow board may need a longer time-out.",
            ),
        }.get(
            command,
            (
                f"no answer to {command.name.lower()}",
                "the firmware hangs or the line is too bad: reset the board and try again.",
            ),
        )
        return DeviceTimeoutError(
            f"{what} within {self._patience_s(command):g} s.",
            where=self._transport.name,
            hint=hint,
        )
