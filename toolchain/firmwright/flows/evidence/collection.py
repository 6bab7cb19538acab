"""Collects the evidence of a verified model: the board's outputs and costs."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from firmwright.artifacts import Variant
from firmwright.base.errors import FirmwrightError, ToolMissingError, UsageError
from firmwright.base.json_input import JsonObject
from firmwright.base.source_date import source_date_s
from firmwright.boards import Board, Compiler
from firmwright.boards.schema import RunKind
from firmwright.build.compiler_selection import choose_compiler
from firmwright.device.transport_selection import is_emulated_chip, takes_image
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.board.model_session import SessionOpener
from firmwright.flows.evidence.record import (
    SAMPLES_MAX,
    DeviceIdentity,
    Evidence,
    FirmwareImage,
    InputOrigin,
    MeasuredCost,
    ModeledCycles,
    ModelFile,
    OperatorCounts,
    ReferenceComparison,
    TransportKind,
    hash_tensors,
    record_outputs,
)
from firmwright.flows.evidence.tool_versions import find_tool_versions
from firmwright.flows.measure.instruction_counts import measure_instructions
from firmwright.flows.measure.profiling import Profile, profile
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.given_options import to_option_values
from firmwright.flows.model.model import Model, load_model
from firmwright.flows.samples.sample_batches import SampleBatch
from firmwright.flows.verify.verification import Verification
from firmwright.package.option_serialization import (
    deserialize_options,
    serialize_options,
)
from firmwright.pipeline import Compilation, Options

_NOT_REPEATABLE: Final = (
    "omit --tuning, --pass, --update-of, --custom-op, --partition, --input-shape and "
    "--fix-input, whose values the evidence does not contain."
)


@dataclass(frozen=True, slots=True)
class EvidenceRequest:
    """How the firmware is reached, and where the samples are from.

    `input_file` is "" for samples that `seed` generates.
    """

    model_file: Path
    open_with: SessionOpener
    port: str = ""
    compiler: Compiler | None = None
    input_file: str = ""
    seed: int = 0


def collect_evidence(
    compiled: Compilation,
    request: EvidenceRequest,
    batch: SampleBatch,
    verification: Verification,
    wall_seconds: float,
) -> Evidence:
    """Measure `compiled` and describe it with the outputs of `verification`.

    Raise UsageError if the evidence could not be checked from the model and options.
    """
    board = compiled.board
    _check_is_hardware(board, request.port)
    _check_repeatable(compiled, request, len(batch.samples))
    compiler = choose_compiler(request.compiler, default=board.compiler)
    measured = profile(compiled, open_with=request.open_with, compiler=compiler)
    is_emulated = board.run.kind == "qemu" and not request.port
    variant: Variant = "release" if takes_image(request.port) else "profile"
    return Evidence(
        date=_date_text(),
        model=ModelFile(
            compiled.module.name,
            request.model_file.name,
            compiled.module.origin.sha256,
        ),
        board=board.name,
        options=record_options(compiled.options),
        image=describe_image(compiled, variant, compiler),
        device=describe_device(compiled, request.open_with, request.port),
        inputs=_describe_inputs(compiled, request, batch),
        outputs=record_outputs(verification.outputs),
        reference=ReferenceComparison(
            verification.reference,
            verification.values,
            verification.mismatches,
            verification.max_abs_error,
        ),
        cost=describe_cost(measured),
        modeled=model_cycles(compiled, compiler),
        wall_seconds=round(wall_seconds, 3),
        tools=find_tool_versions(board, compiler, has_emulator=is_emulated),
    )


def _date_text() -> str:
    """Return the time of SOURCE_DATE_EPOCH, by default now, in UTC."""
    seconds = source_date_s(os.environ)
    moment = time.time() if seconds is None else seconds
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _check_is_hardware(board: Board, port: str) -> None:
    """Raise UsageError for an emulated chip, whose cycles are not those of silicon."""
    if is_emulated_chip(board, port):
        what = (
            "the evidence of a board needs the board: an emulator of its chip has "
            "other cycles."
        )
        hint = "connect it, name its port with --port, or omit --evidence."
        raise UsageError(what, where=board.name, hint=hint)


def _check_repeatable(
    compiled: Compilation, request: EvidenceRequest, samples: int
) -> None:
    """Raise UsageError unless the record can have the samples and give this code."""
    if samples > SAMPLES_MAX:
        what = f"evidence has at most {SAMPLES_MAX:,} samples, not {samples:,}."
        raise UsageError(what, where="--evidence", hint="use fewer --samples.")
    options = record_options(compiled.options)
    board_dirs = compiled.options.board_dirs
    try:
        model = load_model(request.model_file)
        again = recompile(model, compiled.board.name, options, board_dirs)
        is_same = again.model_id == compiled.model_id
    except FirmwrightError:
        is_same = False
    if not is_same:
        what = "the model and the recorded options alone do not give this firmware."
        raise UsageError(what, where="--evidence", hint=_NOT_REPEATABLE)


def record_options(options: Options) -> JsonObject:
    """Return the options without the board, which the record names by itself."""
    values = serialize_options(options)
    values.pop("board", None)
    return values


def recompile(
    model: Model, board: str, options: JsonObject, board_dirs: Sequence[Path]
) -> Compilation:
    """Compile with recorded options, which deserialize_options checks."""
    values = deserialize_options(options, Options, Path("options"))
    values |= {"board": board, "board_dirs": tuple(board_dirs)}
    return compile_for(model, **to_option_values(values))


def describe_image(
    compiled: Compilation, variant: Variant, compiler: Compiler
) -> FirmwareImage:
    """Build the image; its hash is that of the .bin file, or of the host's program."""
    image = build_image(compiled, variant, compiler=compiler)
    data = (image.bin or image.elf).read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    return FirmwareImage(variant, compiler, compiled.model_id, digest, len(data))


def describe_device(
    compiled: Compilation, open_with: SessionOpener, port: str = ""
) -> DeviceIdentity:
    """Describe the board by the transport and by what its profile image says."""
    board = compiled.board
    kinds: dict[RunKind, TransportKind] = {"host": "host", "qemu": "emulator"}
    transport = "port" if port else kinds.get(board.run.kind, "port")
    names = ["mvendorid", "marchid", "mimpid"]
    if board.port == "cortex_m":
        names = ["cpuid"]
    names.append("chip_id")
    registers: dict[str, str] = {}
    with open_with(compiled, variant="profile") as session:
        info = session.device.info
        for name, word in zip(names, session.device.identity(), strict=False):
            registers[name] = f"{word:#010x}"
    return DeviceIdentity(transport, info.board, info.start_up_text, registers)


def _describe_inputs(
    compiled: Compilation, request: EvidenceRequest, batch: SampleBatch
) -> InputOrigin:
    names = [tensor.name for tensor in compiled.module.io.inputs]
    return InputOrigin(
        origin="file" if request.input_file else "generated",
        file=Path(request.input_file).name,
        seed=0 if request.input_file else request.seed,
        samples=len(batch.samples),
        sha256=hash_tensors(batch.samples, names),
    )


def describe_cost(measured: Profile) -> MeasuredCost:
    operators: list[OperatorCounts] = []
    for item in measured.operators:
        row = OperatorCounts(item.index, item.name, item.kind, item.count)
        operators.append(row)
    return MeasuredCost(
        unit=measured.unit,
        total=measured.total,
        least=measured.least,
        runs=measured.runs,
        resolution=measured.resolution,
        clock_hz=measured.clock_hz,
        stack_bytes=measured.stack_bytes or 0,
        operators=tuple(operators),
    )


def model_cycles(compiled: Compilation, compiler: Compiler) -> ModeledCycles | None:
    """Return the cycles of the board's core and flash; None if they are not modeled.

    The instructions are counted in QEMU, also those of real boards.
    """
    if compiled.board.is_host:
        return None
    try:
        counts = measure_instructions(
            compiled, compiler=compiler, timing_board=compiled.board
        )
    except (ToolMissingError, UsageError):
        return None
    if counts.total.cycles is None:
        return None
    least, most = counts.silicon_range or (0, 0)
    return ModeledCycles(counts.total.cycles, least, most)
