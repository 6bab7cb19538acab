"""Every way to lower a layer, counted: many kernels in one firmware, each called once.

In: operator calls and a board in QEMU. Out: for each call and schedule what the cost model predicts
and what ran. Nothing is chosen, so schedules are seen that no choice would take. All kernels work
on the same two buffers, on whatever lies there: counts hardly depend on data.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from firmwright.base.dtypes import INT8
from firmwright.base.errors import ToolFailedError
from firmwright.boards import load_board
from firmwright.flows.compiling import compile_for
from firmwright.flows.counting import Share, count
from firmwright.flows.kernels import LOWERED, layer_module, renamed
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.module import IoTensor, IRModule
from firmwright.ir.tir.builder import INDEX
from firmwright.ir.tir.nodes import (
    Access,
    AccessPtr,
    Allocate,
    Buffer,
    CallPrim,
    Expr,
    IntImm,
    Param,
    PrimFunc,
    Seq,
    Stmt,
)
from firmwright.ir.tir.schedule import Alternative
from firmwright.lower.lower import lower_module
from firmwright.ops.registry import op_table
from firmwright.pipeline import Compiled, Options, configured
from firmwright.schedules.registry import INTRINSICS, RULES
from firmwright.targets.cost_weights import weights_of
from firmwright.targets.registry import features

log = logging.getLogger(__name__)
KERNELS_PER_IMAGE = 64
_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class Candidate:
    """One kernel for one layer; `layer` counts the layers that were asked for."""

    layer: int
    call: OpCall
    alternative: Alternative

    @property
    def schedule(self) -> str:
        """The rule and its configuration."""
        return str(self.alternative.function.attrs["schedule"])


def candidates(calls: Iterable[OpCall], board: str, goal: str = "balanced") -> Iterator[Candidate]:
    """Each call in every schedule that lowering offers for it, under names of their own."""
    for layer, call in enumerate(calls):
        options = Options(board=board, optimize=goal)
        module = configured(layer_module(call), load_board(board), options)
        (found,) = lower_module(module, op_table(), RULES, INTRINSICS, features, weights=weights_of)
        for number, alternative in enumerate(found.alternatives):
            yield Candidate(layer, call, renamed(alternative, f"_{layer}_{number}"))


def counted(items: Iterable[Candidate], board: str) -> Iterator[tuple[Candidate, Share]]:
    """What one call of each candidate's kernel executes on `board`.

    A kernel that the compiler refuses is left out with a warning that says so.
    """
    rest = iter(items)
    while batch := tuple(islice(rest, KERNELS_PER_IMAGE)):
        yield from _counted_together(batch, board)


def together(batch: Sequence[Candidate], board: str) -> Compiled:
    """One model that calls the kernel of each candidate, in order."""
    return compile_for(_module(batch, board), board)


def _counted_together(batch: Sequence[Candidate], board: str) -> Iterator[tuple[Candidate, Share]]:
    try:
        shares = count(together(batch, board)).operators
    except ToolFailedError as error:
        if len(batch) == 1:
            log.warning("%s on %s does not build: %s", batch[0].schedule, board, error)
            return
        middle = len(batch) // 2
        yield from _counted_together(batch[:middle], board)
        yield from _counted_together(batch[middle:], board)
    else:
        yield from ((item, shares[index]) for index, item in enumerate(batch))


def _module(batch: Sequence[Candidate], board: str) -> IRModule:
    """A lowered module whose main calls the kernel of each candidate, in order."""
    read = _buffer("x", [kind for item in batch for kind in item.call.inputs])
    written = _buffer("y", [item.call.output for item in batch])
    calls = tuple(
        CallPrim(
            item.alternative.function.name,
            tuple(_argument(param, read, written) for param in item.alternative.function.params),
            op=index,
        )
        for index, item in enumerate(batch)
    )
    body: Stmt = Allocate(read, Allocate(written, Seq(calls), "output"), "input")
    main = PrimFunc("run", (), body, {"aot_main": True})
    functions = {item.alternative.function.name: item.alternative.function for item in batch}
    constants = {
        name: constant for item in batch for name, constant in item.alternative.constants.items()
    }
    plain = IRModule("layers", {**functions, "run": main}, constants, attrs={"entry": "run"})
    module = configured(plain, load_board(board), Options(board=board, keep_input=True))
    io = replace(module.io, inputs=(_tensor(read),), outputs=(_tensor(written),))
    return replace(module, io=io).with_attrs(stage=LOWERED)


def _buffer(name: str, kinds: Sequence[TensorType | None]) -> Buffer:
    most = max(kind.elements for kind in kinds if kind is not None and kind.dtype == INT8)
    return Buffer(name, INT8, (most,), alignment=_ALIGNMENT)


def _argument(param: Param, read: Buffer, written: Buffer) -> Expr:
    assert isinstance(param.value, Buffer)  # kernels have no scalars before merging
    buffer, access = (read, "r") if param.role == "in" else (written, "w")
    mode: Access = "r" if access == "r" else "w"
    return AccessPtr(buffer, IntImm(0, INDEX), param.value.elements, mode)


def _tensor(buffer: Buffer) -> IoTensor:
    return IoTensor(buffer.name, buffer.name, TensorType(buffer.shape, buffer.dtype))
