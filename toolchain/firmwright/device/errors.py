"""Errors of requests (refusal, loss, fault, timeout) and their time limits."""

from __future__ import annotations

from dataclasses import dataclass

from firmwright.base.errors import DeviceError, DeviceTimeoutError
from firmwright.device.fault_report import Fault
from firmwright.device.link_protocol import Command, Status

_REFUSALS = {
    Status.COMMAND: "unknown command",
    Status.SIZE: "the payload has the wrong size",
    Status.RANGE: "index, offset or size out of range",
    Status.NO_OUTPUT: "no valid output: write the inputs and run first",
    Status.RUN: "the model's run failed",
    Status.UNSUPPORTED: "not supported by this image",
    Status.IO: "external memory cannot be read",
    Status.PARAMS: "the parameter block is incomplete",
}


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time limits of requests, and the delays between repetitions.

    The delay grows from `first_wait_s` to `last_wait_s`. An answer may still arrive
    `damage_grace_s` after damaged bytes or `started_grace_s` after a notice that the
    firmware restarted. `baud_s` limits the attempts at a new baud rate.
    """

    hello_s: float = 20.0
    answer_s: float = 20.0
    run_s: float = 300.0
    baud_s: float = 2.0
    first_wait_s: float = 0.3
    last_wait_s: float = 2.0
    damage_grace_s: float = 0.005
    started_grace_s: float = 0.05

    @classmethod
    def within(cls, seconds: float) -> Timeouts:
        answer_s = min(cls().answer_s, seconds)
        return cls(hello_s=answer_s, answer_s=answer_s, run_s=seconds)

    def of(self, command: Command) -> float:
        match command:
            case Command.HELLO:
                return self.hello_s
            case Command.RUN | Command.STEP:
                # Also before the run is accepted, since that notice may have been lost.
                return self.run_s
        return self.answer_s


class FaultError(DeviceError):
    """The processor faulted, or guard bytes changed; `fault` is the decoded report."""

    def __init__(self, fault: Fault, more: str = "", *, where: str) -> None:
        said = f"{fault}." if not more else f"{fault}. {more}"
        super().__init__(said, where=where, hint=fault.hint)
        self.fault = fault


class RefusedError(DeviceError):
    """The firmware refused a request; `status` gives the reason."""

    def __init__(
        self, command: Command, status: int, payload: bytes, *, where: str
    ) -> None:
        is_known = status in Status.__members__.values()
        reason = _REFUSALS.get(Status(status), "") if is_known else ""
        reason = reason or f"status {status}"
        what = f"the firmware refused {command.name.lower()}: {reason}."
        super().__init__(what, where=where)
        self.status = status
        self.payload = payload


class SessionLostError(DeviceError):
    """The firmware does not know the session: it restarted, or another host came."""

    def __init__(self, *, where: str) -> None:
        why = "it restarted, or another host took over the link"
        what = f"the firmware lost this session: {why}."
        hint = "start the session again; if this repeats, check the power supply."
        super().__init__(what, where=where, hint=hint)


class RequestLostError(DeviceTimeoutError):
    """A request was lost several times in a row and may be split into smaller ones."""


def make_timeout_error(
    command: Command, patience_s: float, *, accepted: bool, where: str
) -> DeviceTimeoutError:
    """Return the error for an unanswered request, `accepted` if its run had begun."""
    match command:
        case Command.HELLO:
            what = "no firmware answered"
            first = "check that the board runs Firmwright firmware"
            hint = f"{first}, and check the baud rate."
        case Command.RUN | Command.STEP:
            what = "no answer to run"
            if accepted:
                what = "the run was accepted but did not end"
            hint = "a large model on a slow board may need a longer time-out."
        case _:
            what = f"no answer to {command.name.lower()}"
            why = "the firmware hangs, the line is unreliable, or an emulator is slow"
            hint = f"{why}: reset the board and try again."
    what = f"{what} within {patience_s:g} s."
    return DeviceTimeoutError(what, where=where, hint=hint)
