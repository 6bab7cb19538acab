"""depthwise_conv2d on the DSP extension with windows of one line, several outputs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from firmwright.base.dtypes import INT32, UINT32
from firmwright.base.rounding import divide_up
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import per_tensor_quant
from firmwright.schedules.cortex_m_dsp.depthwise_sliding_window import (
    MAX_LINE,
    ChannelRegisters,
    channel_registers,
    has_sliding_products,
    with_zero_points,
)
from firmwright.schedules.depthwise import line_blocks
from firmwright.schedules.epilogue import by_arithmetic
from firmwright.schedules.row_band import PixelBlock
from firmwright.schedules.schedule_factories import dsp_schedule
from firmwright.schedules.window_bounds import WindowAxis, line_axes, window_axes

# One channel at a time; a block of adjacent outputs along the line shares its inputs.
# Each input is loaded once. PKHBT pairs it with the one before it, and SMLAD multiplies
# the pair into every output that has both in a pair of taps:
#
#     inputs:      0   1   2   3   4   5         5 taps, stride 1
#     output 0:    w0  w1 |w2  w3 |w4
#     output 1:        w0  w1 |w2  w3 |w4
#
# Outputs end in order, so that few sums are in registers at once.

_MIN_TAPS = 4
"""With fewer taps, a pair saves no instruction."""
_MANY_SUMS = 5
"""With more outputs that use an input, blocks are short: their sums take registers."""
_LONG, _SHORT = 8, 3


def _configs(op: OpCall) -> Sequence[PixelBlock]:
    if not has_sliding_products(op):
        return ()
    line, across = line_axes(op)
    is_line = across.taps == 1 and not across.before
    outputs = len(line.outputs)
    if not is_line or not _MIN_TAPS <= line.taps <= MAX_LINE or outputs == 1:
        return ()
    most = _LONG if divide_up(line.taps, line.stride) <= _MANY_SUMS else _SHORT
    return (PixelBlock(min(most, outputs)),)


@dataclass(frozen=True, slots=True)
class _Products:
    """Products of the taps `tap` and, in a pair, `tap` + 1 of an output of a block.

    The last input is `last`, counted from the first valid one of the block.
    """

    last: int
    output: int
    tap: int
    is_pair: bool


def _products(taps: range, stride: int, outputs: int) -> list[_Products]:
    """Return the products of a block with the valid `taps`, in the order of inputs."""
    products: list[_Products] = []
    for output in range(outputs):
        first = output * stride - taps.start
        for tap in range(taps.start - taps.start % 2, taps.stop, 2):
            valid = [each for each in (tap, tap + 1) if each in taps]
            is_pair = len(valid) == 2
            product = _Products(first + valid[-1], output, valid[0], is_pair)
            products.append(product)
    return sorted(products, key=lambda product: (product.last, product.output))


def _build(op: OpCall, config: PixelBlock, b: Kernel) -> None:
    line, across = line_axes(op)
    zero_point = per_tensor_quant(op.input(0)).zero_point
    window_channels = channel_registers(b, op, is_vertical=across == window_axes(op)[0])
    with (
        window_channels as (channel, (source, target)),
        b.loops("n position", (b.y.shape[0], len(across.outputs))) as (n, position),
    ):
        x = source + n * (b.input(0).elements // b.input(0).shape[0])
        x = x + position * (across.stride * across.input_step)
        y = target + n * (b.y.elements // b.y.shape[0])
        y = y + position * across.output_step
        for form in by_arithmetic(b, channel.finish, is_tile=False):
            for run in line.runs():
                missing = [(0, tap) for tap in line.missing(run.taps)]
                bias = with_zero_points(zero_point, channel, channel.bias, missing)
                bias = b.let("run_bias", bias) if missing else bias
                registers = replace(channel, bias=bias, finish=form)
                for first, count in line_blocks(b, run, config.pixels):
                    left = first * line.stride - line.before + run.taps.start
                    places = x + left * line.input_step, y + first * line.output_step
                    _emit_block(b, line, registers, run.taps, count, places)


def _emit_block(
    b: Kernel,
    line: WindowAxis,
    channel: ChannelRegisters,
    taps: range,
    outputs: int,
    places: tuple[ArithExpr, ArithExpr],
) -> None:
    """Compute `outputs` outputs; `places` are those of the first input and output."""
    inputs = (outputs - 1) * line.stride + len(taps)
    x = b.view("line", b.input(0), places[0], (inputs,), strides=(line.input_step,))
    steps = (line.output_step,)
    y = b.view("out", b.y, places[1], (outputs,), strides=steps, access="w")
    sums = [b.reg(f"sum{output}", INT32) for output in range(outputs)]
    values: list[ArithExpr] = []
    pairs: dict[int, ArithExpr] = {}
    products = _products(taps, line.stride, outputs)
    for index, product in enumerate(products):
        while len(values) <= product.last:
            value = b.load_i32(x, [len(values)])
            values.append(b.let(f"x{len(values)}", value))
        total = sums[product.output]
        is_first = all(each.output != product.output for each in products[:index])
        start = channel.bias if is_first else b.load(total, [0])
        word, name, weights = values[product.last].cast(UINT32), "smlad", None
        if product.is_pair:
            if product.last not in pairs:
                both = values[product.last - 1 : product.last + 1]
                pair = call_intrinsic("pkhbt", both, UINT32)
                pairs[product.last] = b.let(f"pair{product.last}", pair)
            word, weights = pairs[product.last], channel.pair(0, product.tap // 2)
        else:
            name, weights = channel.single(0, product.tap)
        b.store(total, [0], call_intrinsic(name, [word, weights, start], INT32))
        if all(each.output != product.output for each in products[index + 1 :]):
            b.store(y, [product.output], channel.finish(b.load(total, [0])))


SCHEDULES = (
    dsp_schedule(
        "dsp.depthwise.line",
        "depthwise_conv2d",
        configs=_configs,
        build=_build,
        takes_weight_zero_point=True,
    ),
)
