"""One task of a search: several kernels in one firmware, run once, checked and counted.

In: a `Task`, which holds all that is needed, so that any process on any machine may run it. Out:
for each kernel what it costs, or that it is wrong or fails. Instructions are counted one by one in
QEMU (method exact), or by the board's own counter around each kernel (method timer), where QEMU
has no plugins or a port leads to a board. A kernel is wrong if any value differs from those of the
operator's own loops, which run beside it.
"""

from __future__ import annotations

import logging
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from firmwright.artifacts import Image
from firmwright.base.errors import (
    DeviceError,
    DoesNotFitError,
    FirmwrightError,
    ToolFailedError,
    ToolMissingError,
    UsageError,
)
from firmwright.base.version import VERSION
from firmwright.boards import Board, load_board
from firmwright.build import flags
from firmwright.device import check_plugins
from firmwright.flows.counting import SharedKernelError, count
from firmwright.flows.images import build_image
from firmwright.flows.inputs import generated
from firmwright.flows.kernels import OUTPUT, KernelLayer, checked_module, layer_module
from firmwright.flows.sessions import ModelSession, open_session
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.schedule import DEFAULT_RULE
from firmwright.ir.tuning import Choice, Circumstances, Status
from firmwright.pipeline import Compiled, Options, compile_model, configured, lowering_of

log = logging.getLogger(__name__)
EXACT, TIMER = "exact", "timer"
_RANDOM_SAMPLE = 3
"""The first of a seed's samples that is random; those before are constant."""
_TOOL_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Rig:
    """How kernels are run: by which method, and for a board its port and how it is flashed.

    `flash` is a command in which {elf}, {bin} and {hex} stand for the image's files.
    """

    method: str = EXACT
    port: str = ""
    flash: str = ""
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """Layers with the kernels of each to be measured, in one firmware if they fit."""

    layers: tuple[tuple[OpCall, tuple[Choice, ...]], ...]
    options: Options
    rig: Rig

    @property
    def size(self) -> int:
        """How many kernels there are."""
        return sum(len(choices) for _, choices in self.layers)


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one kernel; `count` is 0 unless it is ok."""

    status: Status
    count: int = 0
    unit: str = ""


# ---- the way kernels are run ---------------------------------------------------------------------


def rig_for(board: Board, port: str, flash: str, timeout_s: float | None = None) -> Rig:
    """How kernels are measured on `board`. UsageError where they cannot be."""
    if port:
        if not flash:
            raise UsageError(
                "each trial is a firmware of its own, and nothing says how to flash it.",
                where=board.name,
                hint="--flash 'COMMAND {bin}', with {elf}, {bin} or {hex} for the image.",
            )
        return Rig(TIMER, port, flash, timeout_s)
    if board.run.kind != "qemu":
        raise UsageError(
            "kernels are measured in QEMU, or on a board behind a port.",
            where=board.name,
            hint="--board mps2-an386, or --port URL with --flash COMMAND.",
        )
    try:
        check_plugins(board.run.program)
    except ToolMissingError as missing:
        if shutil.which(board.run.program) is None:
            raise
        log.warning("%s Kernels are counted by the timer, which is coarser.", missing)
        return Rig(TIMER, timeout_s=timeout_s)
    return Rig(EXACT, timeout_s=timeout_s)


def circumstances(options: Options, method: str) -> Circumstances:
    """What counts depend on, on the machine where this runs."""
    board = load_board(options.board, options.board_dirs)
    words = (flags.MODEL_OPTIMISATION, *flags.compile_flags(board))
    return Circumstances(board.name, method, _compiler(board), " ".join(words), VERSION)


def _compiler(board: Board) -> str:
    name = flags.tool(board, "gcc")
    if shutil.which(name) is None:
        packages = flags.package_of(board.toolchain)
        raise ToolMissingError(
            f"the compiler {name} is not installed.",
            where=board.name,
            hint=f"apt install {packages}.",
        )
    done = subprocess.run(
        [name, "--version"], capture_output=True, text=True, timeout=_TOOL_TIMEOUT_S, check=False
    )
    return done.stdout.partition("\n")[0].strip()


# ---- a task --------------------------------------------------------------------------------------


def run_task(task: Task) -> tuple[Result, ...]:
    """A result for each kernel of each layer, in order.

    What one kernel breaks is found by halving the task until it is alone. Raises what no kernel is
    to blame for.
    """
    problem: FirmwrightError
    try:
        return _run_together(task)
    except (ToolFailedError, DoesNotFitError, SharedKernelError) as error:
        problem = error
    except DeviceError as error:
        if task.rig.port:
            raise DeviceError(error.what, where=error.where, hint=error.hint) from error
        problem = error
    if task.size == 1:
        log.warning("a kernel fails: %s: %s", _name(task), problem)
        return (Result("failed"),)
    first, second = halves(task)
    return run_task(first) + run_task(second)


def halves(task: Task) -> tuple[Task, Task]:
    """The same kernels in the same order, as two tasks."""
    flat = [(call, choice) for call, choices in task.layers for choice in choices]
    middle = len(flat) // 2
    return (
        Task(grouped(flat[:middle]), task.options, task.rig),
        Task(grouped(flat[middle:]), task.options, task.rig),
    )


def grouped(
    kernels: Sequence[tuple[OpCall, Choice]],
) -> tuple[tuple[OpCall, tuple[Choice, ...]], ...]:
    """Kernels of one layer that follow each other are together."""
    found: list[tuple[OpCall, tuple[Choice, ...]]] = []
    for call, choice in kernels:
        if found and found[-1][0] is call:
            found[-1] = (call, (*found[-1][1], choice))
        else:
            found.append((call, (choice,)))
    return tuple(found)


def _name(task: Task) -> str:
    call, ((rule, config), *_) = task.layers[0]
    return " ".join([call.op, rule, *(f"{name}={value}" for name, value in config)])


def _run_together(task: Task) -> tuple[Result, ...]:
    board = load_board(task.options.board, task.options.board_dirs)
    layers = [_kernel_layer(call, choices, board, task.options) for call, choices in task.layers]
    apart = replace(task.options, optimize="speed")  # kernels share no code: each counts alone
    compiled = compile_model(checked_module(layers, board, apart), apart)
    outputs, counts, unit = _measured(compiled, task.rig)
    return tuple(
        Result("wrong") if wrong else Result("ok", taken, unit)
        for wrong, taken in zip(outputs, counts, strict=True)
    )


def _kernel_layer(
    call: OpCall, choices: Sequence[Choice], board: Board, options: Options
) -> KernelLayer:
    lowering = lowering_of(configured(layer_module(call), board, options), options)
    kernels = tuple(lowering.kernel(0, rule, dict(config)) for rule, config in choices)
    return KernelLayer(call, lowering.kernel(0, DEFAULT_RULE, {}), kernels)


def _measured(compiled: Compiled, rig: Rig) -> tuple[list[int], list[int], str]:
    """Of every kernel how many values differ, and its count, in that unit."""
    sample = generated(compiled.module.io.inputs, _RANDOM_SAMPLE + 1).samples[_RANDOM_SAMPLE]
    found: list[Mapping[str, Any]] = []

    def read(session: ModelSession) -> None:
        found.append(session.device.read_outputs())

    if rig.method == EXACT:
        exact = count(compiled, open_with=opener(rig), sample=sample, behind=read)
        counts, unit = [exact.operators[i].instructions for i in exact.operators], "instructions"
    else:
        image = build_image(compiled, "profile")
        flash_board(image, rig.flash)
        with opener(rig)(compiled, image=image) as session:
            session.device.measure(sample)
            counts = [record.count for record in session.device.profile()]
            unit = session.device.info.counter_unit
            read(session)
    return [int(n) for n in found[0][OUTPUT]], counts, unit


def opener(rig: Rig) -> Any:
    """`open_session` by that rig."""

    def open_it(compiled: Compiled, **more: Any) -> ModelSession:
        return open_session(compiled, port=rig.port, timeout_s=rig.timeout_s, **more)

    return open_it


def flash_board(image: Image, template: str) -> None:
    """Run the command that puts `image` on the board; nothing if there is none."""
    if not template:
        return
    files = {"{elf}": image.elf, "{bin}": image.bin, "{hex}": image.hex}
    words = shlex.split(template)
    for name, file in files.items():
        words = [word.replace(name, str(file)) for word in words]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=_TOOL_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"the board cannot be flashed: {error}.", where=template) from error
    if done.returncode:
        raise DeviceError(
            f"the board cannot be flashed: {words[0]} ended with {done.returncode}. "
            f"{done.stderr.strip() or done.stdout.strip()}",
            where=template,
        )
