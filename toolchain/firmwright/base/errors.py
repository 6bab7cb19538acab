"""The errors that users see; each names the problem, its location and a remedy.

The class determines `error.code` of `--json` output and the exit code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERNAL = 70
_SHOWN_MAX = 40


class FirmwrightError(Exception):
    """The base class of errors; printed as one paragraph."""

    code: ClassVar[str] = "internal"
    exit_code: ClassVar[int] = EXIT_FAILED

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        # A file's name must not look like a message.
        where = self.where.replace("\n", "\\n")
        text = f"{where}: {self.what}" if where else self.what
        gap = "\n" if "\n" in text else " "
        return f"{text}{gap}Try: {self.hint}" if self.hint else text


class UsageError(FirmwrightError):
    """A contradictory command line or call, or an unknown name in it."""

    code = "usage"
    exit_code = EXIT_USAGE


class ModelError(FirmwrightError):
    """A malformed model or module text: truncated, out of bounds, or ill-typed."""

    code = "bad_model"
    exit_code = EXIT_USAGE

    @classmethod
    def broken(cls, what: str, where: str) -> ModelError:
        hint = "export the model again, or fetch it again if it was downloaded."
        return cls(f"the model is broken: {what}", where=where, hint=hint)


@dataclass(frozen=True, slots=True)
class UnsupportedItem:
    """One unsupported feature of a model: the operator, its place, and the reason."""

    op: str
    where: str
    why: str


OPERATOR_IS_UNSUPPORTED = "this operator is not supported"
_OPERATORS_HINT = (
    "other operators in the model before its export (`firmwright ops` lists the "
    "supported ones); end the exported model before the first of these places, and "
    "compute the rest in your program; or a custom operator "
    "(docs/reference/custom-operators.md)."
)


class UnsupportedError(FirmwrightError):
    """A valid model with unsupported features; it lists all of them.

    `what` replaces the list in the message.
    """

    code = "unsupported"
    exit_code = EXIT_USAGE

    def __init__(
        self,
        items: Sequence[UnsupportedItem],
        *,
        where: str = "",
        hint: str = "",
        what: str = "",
    ) -> None:
        listed: list[str] = []
        for item in items[:_SHOWN_MAX]:
            place = item.where.removeprefix(f"{where}: ")
            listed.append(f"\n  {item.op} at {place}: {item.why}")
        if len(items) > _SHOWN_MAX:
            listed.append(f"\n  and {len(items) - _SHOWN_MAX} more")
        reasons = [item.why for item in items]
        if not hint and any(why.startswith(OPERATOR_IS_UNSUPPORTED) for why in reasons):
            hint = _OPERATORS_HINT
        count = f"{len(items)} place{'s' if len(items) != 1 else ''}"
        listing = f"the model is not supported in {count}:{''.join(listed)}"
        super().__init__(what or listing, where=where, hint=hint)
        self.items = tuple(items)


class PluginError(UsageError):
    """A defect of an installed or registered extension, such as an exception."""

    code = "plugin"


class BoardError(FirmwrightError):
    """A board or SoC file that violates the schema, or an unknown board."""

    code = "usage"
    exit_code = EXIT_USAGE


class BoardFileError(BoardError):
    """Several errors of a board file; each names its place and remedy."""

    def __init__(self, errors: Sequence[BoardError]) -> None:
        lines = "".join(f"\n  {error}" for error in errors)
        file = errors[0].where.partition(":")[0]
        super().__init__(f"{len(errors)} errors:{lines}", where=file)
        self.errors = tuple(errors)


@dataclass(frozen=True, slots=True)
class RegionOverflow:
    """A memory region or pool that is too small."""

    name: str
    need_bytes: int
    have_bytes: int


class DoesNotFitError(FirmwrightError):
    """A memory plan or a linked image that exceeds the board's memory.

    `is_proven`: no other plan of the same buffers would fit.
    """

    code = "does_not_fit"

    def __init__(
        self,
        what: str,
        *,
        regions: Sequence[RegionOverflow] = (),
        lowest_bytes: int = 0,
        peak: Sequence[tuple[str, int]] = (),
        is_proven: bool = False,
        where: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(what, where=where, hint=hint)
        self.is_proven = is_proven
        self.regions = tuple(regions)
        self.lowest_bytes = lowest_bytes
        self.peak = tuple(peak)


class MismatchError(FirmwrightError):
    """Outputs that differ from the reference."""

    code = "mismatch"


class IncompleteError(FirmwrightError):
    """Some parts of the work failed; the results of the others are complete."""

    code = "incomplete"


class ToolMissingError(FirmwrightError):
    """A required compiler, emulator or package that is not installed."""

    code = "tool_missing"


class ToolFailedError(FirmwrightError):
    """An external tool that failed; carries the command and the end of its output."""

    code = "tool_failed"

    def __init__(
        self,
        what: str,
        *,
        command: Sequence[object] = (),
        exit_status: int | None = None,
        output: str = "",
        where: str = "",
        hint: str = "",
    ) -> None:
        tail = "\n".join(output.strip().splitlines()[-20:])
        super().__init__(f"{what}\n{tail}" if tail else what, where=where, hint=hint)
        self.command = tuple(map(str, command))
        self.exit_status = exit_status


class DeviceError(FirmwrightError):
    """A failure of a device, its port or the link."""

    code = "device"


class DeviceTimeoutError(DeviceError):
    """A device that did not answer in time, after all retries."""

    code = "timeout"


class InternalError(FirmwrightError):
    """A violated invariant: a bug in the compiler, whatever the input."""

    code = "internal"
    exit_code = EXIT_INTERNAL


class ReferenceRefusalError(ToolFailedError):
    """A reference runtime that refuses a model or the samples of its inputs."""


class NotSupportedError(Exception):
    """Raised if an importer or `infer` rejects a valid call, with the reason."""
