"""The two kernels of a reduction over rows: one adds a band of rows, one finishes.

sums = 0; for each band: sums += rows of the band; y = finish(sums)
"""

from collections.abc import Callable

from firmwright.ir import tir
from firmwright.ir.core import Span
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import Builder
from firmwright.ops.kernel import KERNEL_ALIGNMENT
from firmwright.ops.opdef import RowReduction


def accumulation_kernel(
    name: str,
    span: Span,
    call: OpCall,
    rows: RowReduction,
    band: int,
    accumulate: Callable[[OpCall, Builder, tir.Buffer, tir.Buffer], None],
) -> Builder:
    """Return the kernel that adds `band` rows to the sums by `accumulate`."""
    x = call.input(0)
    kernel = Builder(name, span)
    shape, count = (1, band, *x.shape[2:]), (rows.count,)
    row = kernel.buffer_param("x", x.dtype, shape, "in", KERNEL_ALIGNMENT)
    acc = kernel.buffer_param("acc", rows.dtype, count, "inout", KERNEL_ALIGNMENT)
    accumulate(call, kernel, row, acc)
    return kernel


def finish_kernel(name: str, span: Span, call: OpCall, rows: RowReduction) -> Builder:
    """Return the kernel that computes the result of the reduction from the sums."""
    y = call.output
    kernel = Builder(name, span)
    count = (rows.count,)
    acc = kernel.buffer_param("acc", rows.dtype, count, "in", KERNEL_ALIGNMENT)
    result = kernel.buffer_param("y", y.dtype, y.shape, "out", KERNEL_ALIGNMENT)
    rows.finish(call, kernel, acc, result)
    return kernel
