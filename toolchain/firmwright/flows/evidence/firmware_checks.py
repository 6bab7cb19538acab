"""Checks the image of evidence, its modeled cycles, and what an emulator measures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Final

from firmwright.base.errors import FirmwrightError
from firmwright.base.version import VERSION
from firmwright.boards import Board
from firmwright.flows.board.model_session import SessionOpener, open_session
from firmwright.flows.evidence.collection import (
    describe_cost,
    describe_device,
    describe_image,
    model_cycles,
)
from firmwright.flows.evidence.findings import (
    Finding,
    Verdict,
    compare_values,
    unchecked,
)
from firmwright.flows.evidence.record import (
    DeviceIdentity,
    Evidence,
    FirmwareImage,
    MeasuredCost,
    ModeledCycles,
    ToolVersions,
)
from firmwright.flows.evidence.tool_versions import find_tool_versions
from firmwright.flows.measure.profiling import Profile, profile
from firmwright.flows.samples.sample_batches import SampleBatch, Tensors
from firmwright.pipeline import Compilation

_PARTS: Final = {
    "cortex-m0": 0xC20,
    "cortex-m0plus": 0xC60,
    "cortex-m3": 0xC23,
    "cortex-m4": 0xC24,
    "cortex-m7": 0xC27,
    "cortex-m33": 0xD21,
    "cortex-m33+nodsp": 0xD21,
    "cortex-m52": 0xD24,
    "cortex-m55": 0xD22,
    "cortex-m85": 0xD23,
    "cortex-r5": 0xC15,
}
"""The part numbers in bits 4 to 15 of CPUID (Arm's reference manuals of the cores)."""
_ON_THE_BOARD: Final = "It was measured on the sender's board."


@dataclass(frozen=True, slots=True)
class FirmwareRebuild:
    """What this computer makes of a record's options.

    `reason` tells why the image is not built. `outputs` and `measured` are those of an
    emulator that runs the image again.
    """

    tools: ToolVersions | None = None
    image: FirmwareImage | None = None
    reason: str = ""
    modeled: ModeledCycles | None = None
    measured: Profile | None = None
    device: DeviceIdentity | None = None
    outputs: Sequence[Tensors] = ()


def rebuild_firmware(
    evidence: Evidence, compiled: Compilation, batch: SampleBatch | None
) -> FirmwareRebuild:
    """Build the image with the record's tools, and run it if the board is emulated."""
    image, board = evidence.image, compiled.board
    if evidence.tools.firmwright != VERSION:
        made = f"It was made by firmwright {evidence.tools.firmwright}"
        return FirmwareRebuild(reason=f"{made}; this is {VERSION}.")
    is_emulated = evidence.device.transport == "emulator" and board.run.kind == "qemu"
    tools = find_tool_versions(board, image.compiler, has_emulator=is_emulated)
    recorded = (evidence.tools.compiler, evidence.tools.c_library)
    if recorded != (tools.compiler, tools.c_library):
        made = f"It was made with {' and '.join(filter(None, recorded))}"
        here = " and ".join(filter(None, (tools.compiler, tools.c_library)))
        return FirmwareRebuild(tools, reason=f"{made}; here is {here or 'neither'}.")
    try:
        built = describe_image(compiled, image.variant, image.compiler)
        modeled = model_cycles(compiled, image.compiler)
        if not is_emulated:
            return FirmwareRebuild(tools, built, "", modeled)
        measured = profile(compiled, compiler=image.compiler)
        open_with: SessionOpener = partial(open_session, compiler=image.compiler)
        device = describe_device(compiled, open_with)
        outputs: Sequence[Tensors] = ()
        if batch is not None:
            with open_with(compiled) as session:
                outputs = session.run_all(batch.samples)
    except FirmwrightError as error:
        return FirmwareRebuild(tools, reason=str(error))
    return FirmwareRebuild(tools, built, "", modeled, measured, device, outputs)


def check_firmware(
    evidence: Evidence, compiled: Compilation, here: FirmwareRebuild
) -> Iterator[Finding]:
    recorded = evidence.image
    if evidence.tools.firmwright == VERSION:
        yield compare_values("image.model_id", recorded.model_id, compiled.model_id)
    if here.image is None:
        for part in ("image", "modeled", "cost"):
            yield unchecked(part, here.reason)
        return
    for name in ("variant", "compiler", "sha256", "size_bytes"):
        values = getattr(recorded, name), getattr(here.image, name)
        yield compare_values(f"image.{name}", *values)
    yield from _check_modeled(evidence.modeled, here.modeled)
    if evidence.device.transport != "emulator":
        yield from _check_cost_of_chip(evidence.cost, here.modeled)
    elif here.measured is None or here.tools is None:
        reason = f"{compiled.board.name} is not emulated."
        yield Finding("device.transport", Verdict.DIFFERS, reason)
    else:
        is_same = evidence.tools.emulator == here.tools.emulator
        cost = describe_cost(here.measured)
        # The counts of another emulator may differ by a tick of the counter.
        slack = 0 if is_same else cost.resolution
        yield from _check_cost(evidence.cost, cost, slack)


def _check_modeled(
    recorded: ModeledCycles | None, here: ModeledCycles | None
) -> Iterator[Finding]:
    if recorded is None or here is None:
        if recorded is not here:
            reason = "Only one of the record and this computer has modeled cycles."
            yield unchecked("modeled", reason)
        return
    for field in fields(ModeledCycles):
        values = getattr(recorded, field.name), getattr(here, field.name)
        yield compare_values(f"modeled.{field.name}", *values)


def _check_cost_of_chip(
    cost: MeasuredCost, modeled: ModeledCycles | None
) -> Iterator[Finding]:
    """Judge a chip's cycles by the range that the model allows."""
    if modeled is None or cost.unit != "cycles" or not modeled.most:
        reason = f"{_ON_THE_BOARD} No model gives a range of cycles."
        yield unchecked("cost", reason)
        return
    if modeled.least <= cost.least <= cost.total <= modeled.most:
        yield Finding("cost.total", Verdict.CONFIRMED)
    else:
        allowed = f"{modeled.least:,} to {modeled.most:,} cycles"
        reason = f"{cost.total:,} cycles are outside the modeled range, {allowed}."
        yield Finding("cost.total", Verdict.DIFFERS, reason)
    yield unchecked("cost.operators", _ON_THE_BOARD)


def _check_cost(
    recorded: MeasuredCost, here: MeasuredCost, slack: int
) -> Iterator[Finding]:
    for name in ("unit", "runs", "resolution", "clock_hz", "stack_bytes"):
        values = getattr(recorded, name), getattr(here, name)
        yield compare_values(f"cost.{name}", *values)
    for name in ("total", "least"):
        values = getattr(recorded, name), getattr(here, name)
        yield _compare_counts(f"cost.{name}", *values, slack)
    names = [(row.index, row.name, row.kind) for row in recorded.operators]
    if names != [(row.index, row.name, row.kind) for row in here.operators]:
        reason = "The indices, names or kinds of the operators are other ones."
        yield Finding("cost.operators", Verdict.DIFFERS, reason)
        return
    are_confirmed = True
    for row, own in zip(recorded.operators, here.operators, strict=True):
        statement = f"cost.operators[{row.index}]"
        finding = _compare_counts(statement, row.count, own.count, slack)
        if finding.verdict is Verdict.DIFFERS:
            are_confirmed = False
            yield finding
    if are_confirmed:
        yield Finding("cost.operators", Verdict.CONFIRMED)


def _compare_counts(statement: str, recorded: int, here: int, slack: int) -> Finding:
    is_near = abs(recorded - here) <= slack
    return compare_values(statement, recorded, recorded if is_near else here)


def check_device(
    evidence: Evidence, board: Board, here: FirmwareRebuild
) -> Iterator[Finding]:
    """Compare the device with the emulator, or a chip's CPUID with the board's core."""
    recorded = evidence.device
    if here.device is not None and here.tools is not None:
        emulators = evidence.tools.emulator, here.tools.emulator
        for field in fields(DeviceIdentity):
            values = getattr(recorded, field.name), getattr(here.device, field.name)
            finding = compare_values(f"device.{field.name}", *values)
            is_register = field.name == "registers"
            if is_register and values[0] != values[1] and emulators[0] != emulators[1]:
                reason = f"It is of {emulators[0]}; here is {emulators[1]}."
                finding = unchecked(finding.statement, reason)
            yield finding
        return
    yield compare_values("device.board", recorded.board, board.name)
    is_emulated = recorded.transport == "emulator"
    reason = here.reason if is_emulated else "Only the sender has the device."
    yield unchecked("device", reason)
    cpuid, part = recorded.registers.get("cpuid"), _PARTS.get(board.core)
    if cpuid is None or part is None:
        return
    if int(cpuid, 16) >> 4 & 0xFFF == part:
        yield Finding("device.registers", Verdict.CONFIRMED)
    else:
        reason = f"{cpuid} is not the CPUID of a {board.core}, whose part is {part:#x}."
        yield Finding("device.registers", Verdict.DIFFERS, reason)
