"""Reliable requests over an unreliable transport.

Numbered requests are repeated, but executed once; the firmware sends a lost answer
again.
"""

import contextlib
import math
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from firmwright.base.errors import DeviceTimeoutError
from firmwright.device import errors
from firmwright.device import link_protocol as link
from firmwright.device.fault_report import Fault
from firmwright.device.link_protocol import Command, Frame, Status
from firmwright.device.transport import Clock, Transport, clock_of, has_baud

_READ_BYTES = 65536
_SEQUENCES = 1 << 16
_SPLIT_AFTER_LOSSES = 4
_CALL_BACK_AFTER_LOSSES = 6
_CALL_BACK_BYTES = 700
"""More than firmware accepts at a wrong rate before it restores the initial rate."""

FaultExplainer = Callable[[Fault], str]


class RequestChannel:
    """The numbered requests of one session; `explain` adds advice to a fault report."""

    def __init__(
        self,
        transport: Transport,
        timeouts: errors.Timeouts,
        *,
        clock: Clock | None = None,
        explain: FaultExplainer | None = None,
    ) -> None:
        self._transport = transport
        self._timeouts = timeouts
        self._clock = clock or clock_of(transport)
        self._explain = explain
        self._reader = link.FrameReader()
        self._received: deque[Frame | None] = deque()
        self._session = self._sequence = 0
        self._usual_s = 0.0
        self._end = math.inf
        self._raised_baud = False
        self.losses = 0
        self.renew()

    def renew(self) -> None:
        """Choose a new session number; the next request must be a hello."""
        self._session = 1 + secrets.randbelow(_SEQUENCES - 1)
        self._sequence = 0

    @contextlib.contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Limit the time of all requests of a block; each also has its own limit."""
        before, self._end = self._end, min(self._end, self._clock() + seconds)
        try:
            yield
        finally:
            self._end = before

    def _deadline(self, seconds: float) -> float:
        return min(self._clock() + seconds, self._end)

    # ---- One at a time ---------------------------------------------------------------

    def request(
        self, command: Command, *fields: int, data: bytes = b"", may_split: bool = False
    ) -> bytes:
        """Send a request of `fields` and `data`, and return the answer's payload.

        Raise RefusedError, SessionLostError, FaultError, DeviceTimeoutError,
        DeviceError if the transport is closed, and RequestLostError after repeated
        losses if `may_split`.
        """
        payload = link.pack_request(command, *fields) + data
        return self.request_frame(command, payload, may_split=may_split).payload

    def request_frame(
        self, command: Command, payload: bytes = b"", *, may_split: bool = False
    ) -> Frame:
        """Send like `request` and return the answer frame, of status OK or PAUSED."""
        answer = self._exchange(self._next(command, payload), may_split)
        self._require_ok(answer, command)
        return answer

    def _next(self, command: Command, payload: bytes) -> Frame:
        self._sequence = (self._sequence + 1) % _SEQUENCES
        return Frame(self._session, self._sequence, command, 0, payload)

    def _require_ok(self, answer: Frame, command: Command) -> None:
        match answer.status:
            case Status.OK | Status.PAUSED:
                return
            case Status.SESSION:
                raise errors.SessionLostError(where=self._transport.name)
            case status:
                where = self._transport.name
                raise errors.RefusedError(command, status, answer.payload, where=where)

    def _exchange(
        self, frame: Frame, may_split: bool, patience_s: float | None = None
    ) -> Frame:
        command = Command(frame.kind)
        deadline = self._deadline(patience_s or self._timeouts.of(command))
        losses, accepted = 0, False
        encoded = link.encode_frame(frame)
        while True:
            if command == Command.BAUD and losses:
                self._call_back()
            answer = self._clear_line([frame], losses)
            sent = self._clock()
            if answer is None:
                self._transport.write(encoded)
                until = min(sent + self._wait_s(losses), deadline)
                answer = self._await([frame], until)
            if answer is not None and answer.status == Status.BUSY:
                accepted = True
                until = min(self._clock() + self._timeouts.last_wait_s, deadline)
                # The notice may be repeated.
                while answer is not None and answer.status == Status.BUSY:
                    answer = self._await([frame], until)
            if answer is not None:
                self._note(command, self._clock() - sent)
                return answer
            losses += 1
            self._note_loss(
                command, losses, deadline, accepted=accepted, may_split=may_split
            )

    def _clear_line(self, requests: Sequence[Frame], losses: int) -> Frame | None:
        """After a loss, end a partial frame in the receiver and wait for its report."""
        # A receiver without FIFO drops bytes while it reports, so nothing may be sent
        # meanwhile.
        if not losses:
            return None
        self._transport.write(b"\0")
        grace_s = self._timeouts.damage_grace_s * min(1.3**losses, 8.0)
        return self._await(requests, self._clock() + grace_s)

    def _wait_s(self, losses: int) -> float:
        """Return the delay until the next repetition, based on the last answer time."""
        first = max(self._timeouts.first_wait_s, 2 * self._usual_s)
        return min(first * 1.5**losses, self._timeouts.last_wait_s)

    def _note(self, command: Command, took_s: float) -> None:
        if command not in (Command.RUN, Command.STEP):
            self._usual_s = took_s

    def _note_loss(
        self,
        command: Command,
        losses: int,
        deadline: float,
        *,
        accepted: bool,
        may_split: bool,
    ) -> None:
        """Count a loss; raise an error if the request must not be repeated."""
        where = self._transport.name
        self.losses += 1
        if self._raised_baud and losses >= _CALL_BACK_AFTER_LOSSES:
            self._go_back()
        if self._clock() >= deadline:
            patience_s = self._timeouts.of(command)
            raise errors.make_timeout_error(
                command, patience_s, accepted=accepted, where=where
            )
        if may_split and losses >= _SPLIT_AFTER_LOSSES:
            what = "a request was lost several times."
            raise errors.RequestLostError(what, where=where)

    # ---- Several at a time -----------------------------------------------------------

    def stream(
        self,
        command: Command,
        make: Callable[[int, int], bytes],
        begin: int,
        end: int,
        *,
        piece_bytes: int,
        window_bytes: int,
        may_split: bool,
    ) -> Iterator[tuple[int, bytes]]:
        """Transfer the bytes [begin, end) in pieces; yield the size and answer of each.

        `make(offset, size)` returns a request's payload. At most `window_bytes`, but at
        least one request, are in flight. After a loss, these are repeated under new
        numbers.
        """
        flying: deque[tuple[Frame, int, int]] = deque()
        sent, losses = begin, 0
        deadline = self._deadline(self._timeouts.of(command))
        while begin < end:
            if not flying:
                self._clear_line([], losses)
            while sent < end:
                size = min(piece_bytes, end - sent)
                frame = self._next(command, make(sent, size))
                encoded = link.encode_frame(frame)
                flying_bytes = sum(one[2] for one in flying)
                if flying and flying_bytes + len(encoded) > window_bytes:
                    # Give the number back: this request waits for its turn.
                    self._sequence = (self._sequence - 1) % _SEQUENCES
                    break
                self._transport.write(encoded)
                flying.append((frame, size, len(encoded)))
                sent += size
            sent_at = self._clock()
            until = min(sent_at + self._wait_s(losses), deadline)
            answer = self._await([one[0] for one in flying], until)
            first, size, _ = flying[0]
            if answer is not None and answer.sequence == first.sequence:
                self._require_ok(answer, command)
                self._note(command, self._clock() - sent_at)
                flying.popleft()
                begin, losses = begin + size, 0
                deadline = self._deadline(self._timeouts.of(command))
                yield size, answer.payload
                continue
            if answer is not None and answer.status == Status.SESSION:
                raise errors.SessionLostError(where=self._transport.name)
            losses += 1
            self._note_loss(
                command, losses, deadline, accepted=False, may_split=may_split
            )
            flying.clear()
            sent, window_bytes = begin, window_bytes // 2

    # ---- Receiving -------------------------------------------------------------------

    def _await(self, requests: Sequence[Frame], until: float) -> Frame | None:
        """Wait for an answer to one of `requests`; None if they must be repeated."""
        while True:
            while self._received:
                frame = self._received.popleft()
                if frame is None or frame.kind == link.KIND_DAMAGED:
                    until = min(until, self._clock() + self._timeouts.damage_grace_s)
                elif frame.kind == link.KIND_STARTED:
                    # The firmware lost this session and will report that on the next
                    # request.
                    until = min(until, self._clock() + self._timeouts.started_grace_s)
                elif self._answers(frame, requests):
                    return frame
            left_s = until - self._clock()
            if left_s <= 0:
                return None
            data = self._transport.read(_READ_BYTES, left_s)
            self._received.extend(self._reader.feed(data))

    def _answers(self, frame: Frame, requests: Sequence[Frame]) -> bool:
        """Return whether a frame answers one of `requests` of this session."""
        if frame.kind == link.KIND_FAULT and frame.session in (0, self._session):
            fault = Fault.decode(frame.payload)
            more = "" if self._explain is None else self._explain(fault)
            raise errors.FaultError(fault, more, where=self._transport.name)
        answered = (frame.session, frame.sequence, frame.kind)
        for request in requests:
            kind = request.kind | link.KIND_ANSWER
            if answered == (request.session, request.sequence, kind):
                return True
        return False

    # ---- The line's rate -------------------------------------------------------------

    def change_baud(self, baud: int) -> bool:
        """Change the baud rate; return whether it works, else both keep the old one."""
        if not has_baud(self._transport):
            return False
        try:
            self.request(Command.BAUD, baud)
        except errors.RefusedError:
            return False
        self._transport.set_baud(baud)
        try:
            hello = self._next(Command.HELLO, b"")
            answer = self._exchange(hello, False, self._timeouts.baud_s)
            self._require_ok(answer, Command.HELLO)
        except DeviceTimeoutError:
            self._go_back()
            self.request(Command.HELLO)
            return False
        self._raised_baud = True
        return True

    def _go_back(self) -> None:
        self._raised_baud = False
        if has_baud(self._transport):
            self._transport.set_baud(0)
            self._call_back()

    def _call_back(self) -> None:
        self._transport.write(b"\xaa" * _CALL_BACK_BYTES + b"\0")
