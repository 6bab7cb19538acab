"""The input rows that each output row needs, for operators over NHWC tensors.

A row is one index of axis 1 of a 4-D tensor with batch size 1. Functions return None
for calls that cannot be row streamed.
"""

from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import Builder
from firmwright.ops.conv_window import ConvWindow
from firmwright.ops.opdef import RowWindow


def sliding_row_window(
    call: OpCall, window: ConvWindow, outside: float | None
) -> RowWindow | None:
    """Return the row window of a sliding `window`, whose padding is `outside`."""
    if not _has_rows(call.input(0).shape):
        return None
    reach = (window.size[0] - 1) * window.dilation[0] + 1
    return RowWindow(reach, window.stride[0], window.padding[0], outside)


def elementwise_row_window(call: OpCall) -> RowWindow | None:
    """Return the window of one row, if output row r needs only row r of variables."""
    if not _has_rows(call.output.shape):
        return None
    height = call.output.shape[1]
    rows, whole = 0, set()
    for index, kind in enumerate(call.inputs):
        if kind is None:
            continue
        is_constant = call.constant(index) is not None
        if not is_constant and _has_rows(kind.shape) and kind.shape[1] == height:
            rows += 1
        elif len(kind.shape) > 2 and kind.shape[-3] != 1:
            return None
        elif not is_constant:
            whole.add(index)
    return RowWindow(whole_inputs=frozenset(whole)) if rows else None


def sum_rows(call: OpCall, b: Builder, x: tir.Buffer, acc: tir.Buffer) -> None:
    """Add rows to sums per channel in the order of the reference.

    It adds row by row, and the elements of a row from left to right.
    """
    with b.for_("c", x.shape[3]) as c:
        total = b.register("total", acc.dtype, b.load(acc, [c]))
        with b.for_("iy", x.shape[1]) as iy, b.for_("ix", x.shape[2]) as ix:
            total.add(b.load(x, [0, iy, ix, c]).cast(acc.dtype))
        b.store(acc, [c], total.value)


def _has_rows(shape: tuple[int, ...]) -> bool:
    return len(shape) == 4 and shape[0] == 1
