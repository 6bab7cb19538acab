"""Measurement of kernels: an image runs several once, and their results are checked.

Method `exact` counts every instruction in QEMU, `cycles` models their cycles, and
`timer` reads the board's counter around each kernel. Results must equal those of the
operator's reference loops.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby

from firmwright.base import errors
from firmwright.base.child_process import find_program, run_program
from firmwright.base.version import VERSION
from firmwright.boards import Board, load_board
from firmwright.build import compiler_flags
from firmwright.device.emulator_plugins import check_plugin_support
from firmwright.extensions.tune.kernel_comparison import (
    MISMATCH_COUNT_OUTPUT,
    KernelComparison,
    comparison_module,
    layer_module,
)
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.board.flashing import run_flash_command
from firmwright.flows.board.model_session import (
    ModelSession,
    SessionOpener,
    open_session,
)
from firmwright.flows.measure.call_attribution import SharedKernelError
from firmwright.flows.measure.instruction_counts import measure_instructions
from firmwright.flows.samples.sample_batches import Tensors, generate_samples
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.tuning_records import (
    DEFAULT_CHOICE,
    ConfiguredSchedule,
    MeasurementContext,
    Status,
)
from firmwright.pipeline import (
    Compilation,
    Options,
    compile_model,
    configure_module,
    make_lowering,
)

log = logging.getLogger(__name__)
EXACT, CYCLES, TIMER = "exact", "cycles", "timer"
_RANDOM_SAMPLE = 3
"""Index of the first random sample; earlier samples are constant."""
_TOOL_TIMEOUT_S = 300.0
"""Time limit of the compiler's --version, large since machines may be busy."""


@dataclass(frozen=True, slots=True)
class MeasurementSetup:
    """How kernels are run: the method, and for a board its port and flash command.

    In `flash`, {elf}, {bin} and {hex} represent the image's files.
    """

    method: str = EXACT
    port: str = ""
    flash: str = ""
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class MeasurementTask:
    """Kernels to measure, in one image if they fit; those of a layer are adjacent."""

    kernels: tuple[tuple[OpCall, ConfiguredSchedule], ...]
    options: Options
    setup: MeasurementSetup


@dataclass(frozen=True, slots=True)
class KernelResult:
    """The result of one kernel; `count` is 0 unless the status is ok."""

    status: Status
    count: int = 0
    unit: str = ""


# ---- the way kernels are run ---------------------------------------------------------


def make_measurement_setup(
    board: Board, port: str, flash: str, timeout_s: float | None = None
) -> MeasurementSetup:
    """Return the setup for measurements on `board`; UsageError if none are possible."""
    if port:
        if not flash:
            what = (
                "each trial is a separate firmware, and there is "
                "no command to flash it."
            )
            hint = (
                "--flash-command 'COMMAND {bin}', "
                "with {elf}, {bin} or {hex} for the image."
            )
            raise errors.UsageError(what, where=board.name, hint=hint)
        return MeasurementSetup(TIMER, port, flash, timeout_s)
    if board.run.kind != "qemu":
        what = "kernels are measured in QEMU, or on a board behind a port."
        hint = "--board mps2-an386, or --port URL with --flash-command COMMAND."
        raise errors.UsageError(what, where=board.name, hint=hint)
    try:
        check_plugin_support(board.run.program)
    except errors.ToolMissingError as missing:
        if find_program(board.run.program) is None:
            raise
        log.warning("%s Kernels are counted by the timer, which is coarser.", missing)
        return MeasurementSetup(TIMER, timeout_s=timeout_s)
    return MeasurementSetup(EXACT, timeout_s=timeout_s)


def measurement_context(options: Options, method: str) -> MeasurementContext:
    """Return the conditions that affect counts on this machine."""
    board = load_board(options.board, options.board_dirs)
    words = (compiler_flags.MODEL_OPTIMIZATION, *compiler_flags.compile_flags(board))
    flags = " ".join(words)
    return MeasurementContext(board.name, method, _compiler(board), flags, VERSION)


def _compiler(board: Board) -> str:
    name = compiler_flags.gnu_tool(board, "gcc")
    if find_program(name) is None:
        what = f"the compiler {name} is not installed."
        hint = f"apt install {compiler_flags.debian_packages(board.toolchain)}."
        raise errors.ToolMissingError(what, where=board.name, hint=hint)
    _, printed = run_program([name, "--version"], name, timeout_s=_TOOL_TIMEOUT_S)
    return printed.partition("\n")[0].strip()


# ---- a task --------------------------------------------------------------------------


def run_task(task: MeasurementTask) -> tuple[KernelResult, ...]:
    """Return the result of each kernel, in order.

    On an error the task is halved until the faulty kernel is isolated. Errors that no
    kernel causes are raised.
    """
    problem: errors.FirmwrightError
    try:
        return _run_together(task)
    except (errors.ToolFailedError, errors.DoesNotFitError, SharedKernelError) as error:
        problem = error
    except errors.DeviceError as error:
        if task.setup.port:
            what, where, hint = error.what, error.where, error.hint
            raise errors.DeviceError(what, where=where, hint=hint) from error
        problem = error
    if len(task.kernels) == 1:
        call, choice = task.kernels[0]
        settings = [f"{name}={value}" for name, value in choice.settings]
        kernel = " ".join([call.op, choice.rule, *settings])
        log.warning("a kernel fails: %s: %s", kernel, problem)
        return (KernelResult("failed"),)
    middle = len(task.kernels) // 2
    first = run_task(replace(task, kernels=task.kernels[:middle]))
    second = run_task(replace(task, kernels=task.kernels[middle:]))
    return first + second


def _run_together(task: MeasurementTask) -> tuple[KernelResult, ...]:
    """Return the results of all kernels of a task, which run in one image."""
    board = load_board(task.options.board, task.options.board_dirs)
    layers: list[KernelComparison] = []
    for _, rows in groupby(task.kernels, lambda item: id(item[0])):
        group = list(rows)
        call, _ = group[0]
        choices = [choice for _, choice in group]
        layers.append(_kernel_layer(call, choices, board, task.options))
    # With another goal, kernels share outlined functions, which would mix their counts.
    options = replace(task.options, optimize="speed", pipeline_runs=False)
    compiled = compile_model(comparison_module(layers, board, options), options)
    return _measured(compiled, task.setup)


def _kernel_layer(
    call: OpCall, choices: Sequence[ConfiguredSchedule], board: Board, options: Options
) -> KernelComparison:
    """Return the kernels of a layer, lowered for `board`, with the reference loops."""
    module = configure_module(layer_module(call), board, options)
    lowering = make_lowering(module, options)
    kernels = tuple(lowering.kernel(0, choice) for choice in choices)
    return KernelComparison(call, lowering.kernel(0, DEFAULT_CHOICE), kernels)


def _measured(
    compiled: Compilation, setup: MeasurementSetup
) -> tuple[KernelResult, ...]:
    """Return the results of a comparison module, whose operators are the kernels."""
    generated = generate_samples(compiled.module.io.inputs, _RANDOM_SAMPLE + 1)
    sample = generated.samples[_RANDOM_SAMPLE]
    outputs: list[Tensors] = []

    def read(session: ModelSession) -> None:
        outputs.append(session.device.read_outputs())

    counts, unit = measure_operators(compiled, setup, sample, read)
    differing = outputs[0][MISMATCH_COUNT_OUTPUT]
    results: list[KernelResult] = []
    for mismatches, count in zip(differing, counts.values(), strict=True):
        if mismatches:
            results.append(KernelResult("wrong"))
        else:
            results.append(KernelResult("ok", count, unit))
    return tuple(results)


def measure_operators(
    compiled: Compilation,
    setup: MeasurementSetup,
    sample: Tensors,
    after_run: Callable[[ModelSession], None] = lambda session: None,
) -> tuple[dict[int, int], str]:
    """Run `sample`; return the counts by operator, and their unit.

    Views have no code and no count. `after_run` is called with the open session.
    """
    opener = session_opener(setup)
    counts: dict[int, int] = {}
    if setup.method != TIMER:
        exact = measure_instructions(
            compiled, open_with=opener, sample=sample, after_run=after_run
        )
        in_cycles = setup.method == CYCLES
        for op, part in exact.operators.items():
            counts[op] = part.duration if in_cycles else part.instructions
        return counts, "cycles" if in_cycles else "instructions"
    image = build_image(compiled, "profile")
    run_flash_command(image, setup.flash)
    with opener(compiled, image=image) as session:
        session.device.measure(sample)
        records = session.device.profile()
        after_run(session)
        unit = session.device.info.counter_unit
    for operator in compiled.summary.operators:
        counts[operator.index] = records[operator.index].count
    return counts, unit


def session_opener(setup: MeasurementSetup) -> SessionOpener:
    """Return `open_session` with the port and the time limit of a setup."""
    return partial(open_session, port=setup.port, timeout_s=setup.timeout_s)
