"""Count every kernel candidate of a layer: many kernels in one image, each called once.

Kernels of one element type share two buffers, as counts hardly depend on data.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from firmwright.base.dtypes import FLOAT32, INT8, INT16, DType
from firmwright.base.errors import ToolFailedError
from firmwright.boards import load_board
from firmwright.extensions.tune.kernel_comparison import (
    LOWERED_STAGE,
    layer_module,
    rename_kernel,
)
from firmwright.flows.measure.instruction_counts import (
    InstructionShare,
    measure_instructions,
)
from firmwright.flows.model.compilation import compile_for
from firmwright.ir import tir
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.module import IoTensor, IRModule
from firmwright.ir.tir.builder import INDEX
from firmwright.lower.lowering import Lowering
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import LoweringCandidate
from firmwright.pipeline import Compilation, Options, configure_module
from firmwright.schedules.registry import INTRINSICS, SCHEDULES
from firmwright.targets.cost_weights import cost_weights_for
from firmwright.targets.registry import target_features

_CARRIED: Mapping[DType, str] = {INT8: "", INT16: "_wide", FLOAT32: "_real"}
"""Element types that kernels may read and write, and the suffixes of their buffers."""

log = logging.getLogger(__name__)
KERNELS_PER_IMAGE = 64
_ALIGNMENT = 16
_APART = "speed"
"""The goal under which kernels are not merged, so that each is counted alone."""


@dataclass(frozen=True, slots=True)
class KernelCandidate:
    """One kernel for one layer; `layer` is the layer's index in the request."""

    layer: int
    call: OpCall
    alternative: LoweringCandidate

    @property
    def schedule(self) -> str:
        return str(self.alternative.function.attrs["schedule"])


def enumerate_candidates(
    calls: Iterable[OpCall], board: str, goal: str = "balanced"
) -> Iterator[KernelCandidate]:
    """Yield every candidate that lowering offers for each call, with unique names."""
    for layer, call in enumerate(calls):
        options = Options(board=board, optimize=goal)
        module = configure_module(layer_module(call), load_board(board), options)
        (lowered_call,) = Lowering(
            module,
            op_table(),
            SCHEDULES,
            INTRINSICS,
            target_features,
            weights=cost_weights_for,
        ).calls()
        for number, alternative in enumerate(lowered_call.candidates):
            yield KernelCandidate(
                layer, call, rename_kernel(alternative, f"_{layer}_{number}")
            )


def count_candidates(
    items: Iterable[KernelCandidate], board: str
) -> Iterator[tuple[KernelCandidate, InstructionShare]]:
    """Yield the executed instructions of each candidate's kernel on `board`.

    A kernel that the compiler rejects is skipped with a warning.
    """
    rest = iter(items)
    while batch := tuple(islice(rest, KERNELS_PER_IMAGE)):
        yield from _count_batch(batch, board)


def compile_candidates(batch: Sequence[KernelCandidate], board: str) -> Compilation:
    return compile_for(_module(batch, board), board)


def _count_batch(
    batch: Sequence[KernelCandidate], board: str
) -> Iterator[tuple[KernelCandidate, InstructionShare]]:
    try:
        shares = measure_instructions(compile_candidates(batch, board)).operators
    except ToolFailedError as error:
        if len(batch) == 1:
            log.warning("%s on %s does not build: %s", batch[0].schedule, board, error)
            return
        middle = len(batch) // 2
        yield from _count_batch(batch[:middle], board)
        yield from _count_batch(batch[middle:], board)
    else:
        yield from ((item, shares[index]) for index, item in enumerate(batch))


def _module(batch: Sequence[KernelCandidate], board: str) -> IRModule:
    read = _buffers("x", [kind for item in batch for kind in item.call.inputs])
    written = _buffers("y", [item.call.output for item in batch])
    kernels = [item.alternative.function for item in batch]
    calls = []
    for index, kernel in enumerate(kernels):
        args = tuple(_argument(param, read, written) for param in kernel.params)
        calls.append(tir.PrimFuncCall(kernel.name, args, op=index))
    body: tir.Stmt = tir.Seq(tuple(calls))
    for role, buffers in (("output", written), ("input", read)):
        for buffer in reversed(list(buffers.values())):
            body = tir.Allocate(buffer, body, role)
    main = tir.PrimFunc("run", (), body, {"aot_main": True})
    functions = {kernel.name: kernel for kernel in kernels}
    constants = {k: c for item in batch for k, c in item.alternative.constants.items()}
    plain = IRModule("layers", {**functions, "run": main}, constants, entry_name="run")
    options = Options(board=board, optimize=_APART, preserve_input=True)
    module = configure_module(plain, load_board(board), options)
    inputs, outputs = (tuple(map(_tensor, ends.values())) for ends in (read, written))
    io = replace(module.io, inputs=inputs, outputs=outputs)
    return replace(module, io=io).with_stage(LOWERED_STAGE)


def _buffers(
    name: str, kinds: Sequence[TensorType | None]
) -> Mapping[DType, tir.Buffer]:
    most: dict[DType, int] = {}
    for kind in kinds:
        if kind is not None and kind.dtype in _CARRIED:
            most[kind.dtype] = max(kind.elements, most.get(kind.dtype, 0))
    return {
        dtype: tir.Buffer(
            f"{name}{_CARRIED[dtype]}", dtype, (count,), alignment=_ALIGNMENT
        )
        for dtype, count in most.items()
    }


def _argument(
    param: tir.Param,
    read: Mapping[DType, tir.Buffer],
    written: Mapping[DType, tir.Buffer],
) -> tir.Expr:
    assert isinstance(param.value, tir.Buffer)  # kernels have no scalars before merging
    is_read = param.role == "in"
    buffer = (read if is_read else written)[param.value.dtype]
    mode: tir.AccessMode = "r" if is_read else "w"
    return tir.AccessPtr(buffer, tir.IntImm(0, INDEX), param.value.elements, mode)


def _tensor(buffer: tir.Buffer) -> IoTensor:
    return IoTensor(buffer.name, buffer.name, TensorType(buffer.shape, buffer.dtype))
