"""The one family of errors a user can meet.

Every error says what was found, where (file, operator, tensor), and what to do. The class fixes
the `error.code` of the `--json` contract and the exit code, so a caller never maps either by hand.
`InternalError` stands apart: only a bug of ours raises it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERNAL = 70


class FirmwrightError(Exception):
    """What went wrong, where, and what to do about it; printed as one paragraph."""

    code: ClassVar[str] = "internal"
    exit_code: ClassVar[int] = EXIT_FAILED

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text} Try: {self.hint}" if self.hint else text


class UsageError(FirmwrightError):
    """The command line or a call asks for what does not exist or contradicts itself."""

    code = "usage"
    exit_code = EXIT_USAGE


class ModelError(FirmwrightError):
    """A model (or module text) that is broken: truncated, out of bounds, ill-typed."""

    code = "bad_model"
    exit_code = EXIT_USAGE


@dataclass(frozen=True, slots=True)
class UnsupportedItem:
    """One thing a model needs that we do not do: the operator, its place, and why."""

    op: str
    where: str
    why: str


class UnsupportedError(FirmwrightError):
    """A sound model that needs something we do not do; carries every such place at once."""

    code = "unsupported"
    exit_code = EXIT_USAGE

    def __init__(
        self, items: Sequence[UnsupportedItem], *, where: str = "", hint: str = ""
    ) -> None:
        lines = "; ".join(f"{item.op} at {item.where}: {item.why}" for item in items)
        count = f"{len(items)} place" + ("s" if len(items) != 1 else "")
        super().__init__(f"the model is not supported in {count}: {lines}.", where=where, hint=hint)
        self.items = tuple(items)


class BoardError(FirmwrightError):
    """A board or soc file that breaks the schema, or a board that does not exist."""

    code = "usage"
    exit_code = EXIT_USAGE


@dataclass(frozen=True, slots=True)
class RegionOverflow:
    """A memory region or pool that is too small: bytes needed against bytes there."""

    name: str
    need_bytes: int
    have_bytes: int


class DoesNotFitError(FirmwrightError):
    """The plan or the linked image needs more memory than the board has."""

    code = "does_not_fit"

    def __init__(
        self,
        what: str,
        *,
        regions: Sequence[RegionOverflow] = (),
        lowest_bytes: int = 0,
        peak: Sequence[tuple[str, int]] = (),
        where: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(what, where=where, hint=hint)
        self.regions = tuple(regions)
        self.lowest_bytes = lowest_bytes
        self.peak = tuple(peak)


class MismatchError(FirmwrightError):
    """Outputs differ from the reference."""

    code = "mismatch"


class ToolMissingError(FirmwrightError):
    """A compiler, emulator or package that the work needs is not installed."""

    code = "tool_missing"


class ToolFailedError(FirmwrightError):
    """An outside tool ran and failed; carries the command and the end of its output."""

    code = "tool_failed"

    def __init__(
        self,
        what: str,
        *,
        command: Sequence[str] = (),
        exit_status: int | None = None,
        output: str = "",
        where: str = "",
        hint: str = "",
    ) -> None:
        tail = "\n".join(output.strip().splitlines()[-20:])
        super().__init__(f"{what}\n{tail}" if tail else what, where=where, hint=hint)
        self.command = tuple(command)
        self.exit_status = exit_status


class DeviceError(FirmwrightError):
    """The device, its port or the link did something it must not."""

    code = "device"


class DeviceTimeoutError(DeviceError):
    """The device did not answer in time, after all retries."""

    code = "timeout"


class InternalError(FirmwrightError):
    """A bug of ours: an invariant that no input should be able to break."""

    code = "internal"
    exit_code = EXIT_INTERNAL


class NotSupportedError(Exception):
    """Raised by an importer or by `infer` when a valid call is not supported; holds the reason."""
