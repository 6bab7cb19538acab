"""Elementwise operators of which an input has one element for each channel.

All pixels of a channel follow each other, so that what depends on that element stays in
registers.
"""

from collections.abc import Callable
from typing import TypeAlias

from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ops.kernel import Kernel

BindChannel: TypeAlias = Callable[[ArithExpr], Callable[[ArithExpr], ArithExpr]]
"""Emits what depends on a channel's element alone; returns the function of the other
input's elements, both as int32."""

_UNROLL = (4, 3, 5, 2)


def channel_input(op: OpCall) -> int | None:
    """Return the input with an element for each channel of the other one, if any.

    The other one varies, and has more than one pixel.
    """
    shape = op.output.shape
    for index in (1, 0):
        of_channel, other = op.input(index), op.input(1 - index)
        is_row = of_channel.shape[-1:] == shape[-1:] == (of_channel.elements,)
        has_pixels = other.shape == shape and op.output.elements > of_channel.elements
        if is_row and has_pixels and op.constant(1 - index) is None:
            return index
    return None


def compute_channels(b: Kernel, index: int, bind: BindChannel) -> None:
    """Compute all pixels of each channel; `index` is the input with its element."""
    channels = b.y.shape[-1]
    shape, steps = (b.y.elements // channels,), (channels,)
    row = b.view("row", b.input(index), 0, (channels,))
    with b.for_("c", channels) as c:
        compute = bind(b.load_i32(row, [c]))
        x = b.view("pixels", b.input(1 - index), c, shape, strides=steps)
        y = b.view("out", b.y, c, shape, strides=steps, access="w")
        with b.unrolled("i", shape[0], *_UNROLL) as i:
            b.store(y, [i], compute(b.load_i32(x, [i])))
