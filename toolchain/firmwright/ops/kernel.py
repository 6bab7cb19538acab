"""The TIR builder of a call's kernel."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from firmwright.base.errors import InternalError
from firmwright.ir import tir
from firmwright.ir.core import Span
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, Builder
from firmwright.ir.tir.inplace_distance import excluded_distances

KERNEL_ALIGNMENT = 4
"""Alignment in bytes of every tensor, guaranteed by the planner, assumed by kernels."""

Position: TypeAlias = tuple[ArithExpr, ArithExpr, ArithExpr]
"""Indices (n, y, x) of a pixel."""


class Nest(ExitStack):
    """Enters loops, each inside the one before: `i = enter(b.for_("i", 4))`."""

    __call__ = ExitStack.enter_context


CopyRun: TypeAlias = Callable[..., None]
"""Emits a copy: `copy(b, (y, at), (x, start), axis)`."""


@dataclass(frozen=True, slots=True)
class CopyRuns:
    """How long runs of bytes, of words and of elements with strides are copied.

    What is None is left to loops.
    """

    of_bytes: CopyRun | None = None
    of_words: CopyRun | None = None
    strided: CopyRun | None = None


class Kernel(Builder):
    """Builds a call's kernel: parameters `x`... are variable inputs, `y`... outputs.

    Constant inputs are not parameters: `input(i)` links them on first use, so a
    lowering that packs its weights never links the original. A schedule sets
    `copy_runs` to emit the innermost loops of data movement operators.
    """

    def __init__(
        self,
        name: str,
        call: OpCall,
        span: Span = Span(""),
        keeps_loops: bool = False,
    ) -> None:
        super().__init__(name, span)
        self.keeps_loops = keeps_loops
        self.call = call
        self.copy_runs = CopyRuns()
        self._inputs: dict[int, tir.Buffer] = {}
        for index, kind in enumerate(call.inputs):
            if kind is not None and call.constant(index) is None:
                self._inputs[index] = self.buffer_param(
                    "x", kind.dtype, kind.shape, "in", KERNEL_ALIGNMENT
                )
        outputs: list[tir.Buffer] = []
        for kind in call.outputs:
            outputs.append(
                self.buffer_param("y", kind.dtype, kind.shape, "out", KERNEL_ALIGNMENT)
            )
        self.outputs = tuple(outputs)

    def views(
        self, names: str, shape: Sequence[int], *buffers: tir.Buffer
    ) -> list[tir.Buffer]:
        """Declare views with `shape`: outputs are write-only, inputs read-only."""
        views: list[tir.Buffer] = []
        for name, x in zip(names.split(), buffers, strict=True):
            access: tir.AccessMode = "w" if x in self.outputs else "r"
            views.append(self.view(name, x, 0, shape, access=access))
        return views

    def state_inplace_distances(self, distances: tuple[int, int]) -> None:
        """State between which distances of output and input the kernel is wrong.

        A kernel of one intrinsic, whose accesses the analysis does not know, does so;
        see ir/tir/inplace_distance.py.
        """
        self.transform = lambda func: replace(
            func, attrs={**func.attrs, "inplace_distances": distances}
        )

    def state_elementwise(self) -> None:
        """State the distances of a kernel that computes elements in ascending order.

        Each is computed from the elements in its place of the inputs, which have as
        many elements as the output, and are all read before the result is written. The
        size of an element is that of the first input.
        """
        size, at = self.call.input(0).dtype.size_bytes, np.arange(self.y.elements)
        reads, writes = (
            (at * step, (at + 1) * step) for step in (size, self.y.dtype.size_bytes)
        )
        self.state_inplace_distances(excluded_distances(reads, writes))

    @property
    def y(self) -> tir.Buffer:
        return self.outputs[0]

    def input(self, index: int) -> tir.Buffer:
        if index not in self._inputs:
            constant = self.call.constant(index)
            if constant is None:
                raise InternalError(f"{self.call.op} has no input {index}")
            self._inputs[index] = self.constant(
                f"c{index}", constant.array(), constant.dtype, KERNEL_ALIGNMENT
            )
        return self._inputs[index]
