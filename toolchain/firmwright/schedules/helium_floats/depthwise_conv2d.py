"""float32 depthwise_conv2d on Helium: strips of an output row of four channels."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from textwrap import indent

import numpy as np

from firmwright.base.dtypes import FLOAT32, Array
from firmwright.base.rounding import divide_up
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.graph.attributes.layers import ActivationAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.intrinsic import Intrinsic, Operand, immediates, pointers
from firmwright.kernels.assembly import string_lines
from firmwright.kernels.channel_blocks import ChannelBlocks
from firmwright.kernels.contract import BiasAdder, Requantizer
from firmwright.kernels.depthwise_contract import (
    DepthwiseContract,
    OutsideTaps,
    OverlappingBlocks,
    WindowInputs,
)
from firmwright.kernels.statement import wrap_assembly
from firmwright.ops.conv2d import bias_of, channel_multiplier_of, weights_of
from firmwright.ops.conv_window import ConvWindow, window_of
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, ScheduleConfig
from firmwright.schedules.depthwise import OutputStrips, lane_tiles
from firmwright.schedules.helium.vector_ending import VECTOR
from firmwright.schedules.helium_floats import accumulate_f32
from firmwright.schedules.helium_floats.accumulate_f32 import (
    ACCUMULATE_STYLES,
    ACTIVATION_CODES,
    AccumulateStyle,
)
from firmwright.schedules.schedule_factories import helium_float_schedule
from firmwright.schedules.window_bounds import split_by_valid_taps

_C = read_sections(__file__)

# `mve_strip_f32_STYLE_PxK...` computes P outputs, `stride` apart, from windows of K
# columns and any number of rows. The weights of a row stay in registers. Each input
# vector is loaded once for all outputs that use it, from left to right, so that
# products are summed in the order of the default loops. The first `before` and last
# `after` positions are outside the input and are skipped. Weights are [row, K, four
# channels].

MAX_COLUMNS = 5
STRIDES = (1, 2)
_REGISTERS = 8
_MAX_OUTPUTS = 6


@dataclass(frozen=True, slots=True)
class Strip:
    """Geometry of a strip; a single output has stride 1."""

    style: AccumulateStyle
    outputs: int
    columns: int
    stride: int
    before: int
    after: int

    @property
    def name(self) -> str:
        edges = f"_{self.before}_{self.after}" if self.before or self.after else ""
        step = f"_by_{self.stride}" if self.stride > 1 else ""
        return f"mve_strip_f32_{self.style}_{self.outputs}x{self.columns}{step}{edges}"

    @property
    def reach(self) -> range:
        length = (self.outputs - 1) * self.stride + self.columns
        return range(self.before, length - self.after)

    def taps(self, position: int) -> list[tuple[int, int]]:
        """Return the (output, tap) pairs that use the input at `position`."""
        pairs = []
        for output in range(self.outputs):
            tap = position - output * self.stride
            if 0 <= tap < self.columns:
                pairs.append((output, tap))
        return pairs

    def used(self) -> list[int]:
        """Return the taps that any output uses, in order."""
        used: set[int] = set()
        for position in self.reach:
            used.update(tap for _, tap in self.taps(position))
        return sorted(used)

    def row(self) -> list[str]:
        values, first = self._registers()
        lines: list[str] = []
        register: dict[int, str] = {}
        for place, tap in enumerate(self.used()):
            register[tap] = f"q{first + place}"
            lines.append(f"vldrw.u32 {register[tap]}, [%[w], #{16 * tap}]")
        lines.append(f"add %[w], #{16 * self.columns}")
        for position in self.reach:
            step = "row" if position == self.reach[-1] else "column"
            lines += [f"vldrw.u32 {values}, [%[x]]", f"add %[x], %[{step}]"]
            for output, tap in self.taps(position):
                total, weights = f"%q[s{output}]", register[tap]
                if self.style == "fused":
                    lines.append(f"vfma.f32 {total}, {values}, {weights}")
                else:
                    lines.append(f"vmul.f32 q6, {values}, {weights}")
                    lines.append(f"vadd.f32 {total}, {total}, q6")
        return lines

    def _registers(self) -> tuple[str, int]:
        """Return the register of values, and the number of the first one of weights."""
        spare = 2 if self.style == "separate" else 1
        return "q7", _REGISTERS - spare - self.columns

    def clobbered(self) -> list[str]:
        return [f"q{number}" for number in range(self._registers()[1], _REGISTERS)]

    def instructions(self, rows: int, activation: int) -> int:
        ending = self.outputs * (3 + accumulate_f32.activation_instructions(activation))
        return 9 + 2 * self.outputs + rows * (len(self.row()) + 1) + ending


def max_outputs(style: AccumulateStyle, columns: int) -> int:
    """Return how many outputs of a strip leave registers for a row of weights."""
    values = 2 if style == "separate" else 1
    return min(_REGISTERS - columns - values, _MAX_OUTPUTS)


def max_outside_columns(columns: int) -> int:
    return columns // 2


def _strips(style: AccumulateStyle) -> Iterator[Strip]:
    for columns in range(1, MAX_COLUMNS + 1):
        outside = range(max_outside_columns(columns) + 1)
        for outputs in range(1, max_outputs(style, columns) + 1):
            for stride in STRIDES if outputs > 1 else (1,):
                for before in outside:
                    for after in outside:
                        strip = Strip(style, outputs, columns, stride, before, after)
                        if strip.reach:
                            yield strip


def _text(strip: Strip) -> str:
    names = [f"s{i}" for i in range(strip.outputs)]
    lines = [f"vmov.i32 %q[{name}], #0" for name in names]
    lines += ["wls lr, %[rows], 2f", "1:", *strip.row(), "le lr, 1b", "2:"]
    outputs = [f'[{name}] "=w"({name})' for name in names]
    outputs += ['[w] "+r"(at_w)', '[x] "+r"(at_x)']
    back = len(strip.reach) - 1
    inputs = ['[rows] "r"(rows)', f'[row] "r"(4 * (x_row - {back} * x_column))']
    if back:
        inputs.append('[column] "r"(4 * x_column)')
    clobbers = [f'"{name}"' for name in (*strip.clobbered(), "lr", "cc", "memory")]
    body = [
        "const float *at_w = w;",
        "const float *at_x = x;",
        f"float32x4_t {', '.join(names)};",
        "__asm__ volatile(",
        *string_lines(lines),
        *wrap_assembly("    : ", outputs),
        *wrap_assembly("    : ", inputs),
        *wrap_assembly("    : ", clobbers, ");"),
        "const float32x4_t biases = vldrwq_f32(bias);",
    ]
    for place, name in enumerate(names):
        body.append(f"{name} = vaddq_f32({name}, biases);")
        body += accumulate_f32.emit_vector_activation(name).splitlines()
        body.append(f"vstrwq_f32(y{place}, {name});")
    return "\n".join(body)


def _portable(strip: Strip) -> str:
    names = ", ".join(f"y{p}" for p in range(strip.outputs))
    x = f"x[i * x_row + (j - {strip.before}) * x_column + lane]"
    w = f"w[{VECTOR * strip.columns} * i + {VECTOR} * k + lane]"
    term = accumulate_f32.PORTABLE_ACCUMULATE[strip.style].format(x=x, w=w, total="sum")
    first, last = strip.reach[0], strip.reach[-1]
    place = f"{strip.stride} * p + k" if strip.stride > 1 else "p + k"
    return fill_text(
        _C["portable"],
        outputs=strip.outputs,
        names=names,
        lanes=VECTOR,
        columns=strip.columns,
        place=place,
        first=first,
        last=last,
        term=term,
        limit=indent(accumulate_f32.emit_scalar_activation("sum"), " " * 8),
    )


def _meaning(
    strip: Strip, x: Array, w: Array, bias: Array, *rest: Array
) -> tuple[Array, ...]:
    activation, rows, x_row, x_column = rest[strip.outputs :]
    values = np.asarray(x, np.float32)
    weights = np.asarray(w, np.float32)
    biases = np.asarray(bias, np.float32)
    sums: list[Array] = [np.zeros_like(biases)] * strip.outputs
    style = strip.style
    with np.errstate(all="ignore"):
        for i in range(rows):
            for position in strip.reach:
                start = i * x_row + (position - strip.before) * x_column
                for output, tap in strip.taps(position):
                    at = VECTOR * (strip.columns * i + tap)
                    x = values[start : start + VECTOR]
                    w = weights[at : at + VECTOR]
                    total = accumulate_f32.accumulate(style, sums[output], x, w)
                    sums[output] = total
        totals = [total + biases for total in sums]
    return tuple(accumulate_f32.apply_activation(total, activation) for total in totals)


def _strip_intrinsic(strip: Strip) -> Intrinsic:
    row = VECTOR * strip.columns
    outputs = [
        Operand(f"y{p}", "ptr", FLOAT32, "w", VECTOR) for p in range(strip.outputs)
    ]
    count, columns = strip.outputs, strip.columns
    return Intrinsic(
        strip.name,
        (
            *pointers(FLOAT32, x=VECTOR, w=row, bias=VECTOR),
            *outputs,
            *immediates("activation", "rows", "x_row", "x_column"),
        ),
        partial(_meaning, strip),
        _portable(strip),
        f"{count} outputs of four channels, windows of {columns} columns.",
        requires="mvefp",
        text={"gnu": _text(strip)},
        count=lambda args: strip.instructions(args[-3], args[-4]),
    )


INTRINSIC_MAKERS = {
    strip.name: partial(_strip_intrinsic, strip)
    for style in ACCUMULATE_STYLES
    for strip in _strips(style)
}


# Output rows with equal valid tap rows share a loop. A row is cut into strips; a long
# row is a loop of strips between two border strips. Taps outside the input are omitted
# as in the default loops. The last four channels overlap their predecessors. No scratch
# memory is needed.

_MAX_SPANS = 5
"""Maximum kinds of rows, and of strips in a row, to bound code size."""


def _contract(style: AccumulateStyle, window: ConvWindow) -> DepthwiseContract:
    is_strip = window.stride[1] in STRIDES
    return DepthwiseContract(
        channels=VECTOR,
        outputs=max_outputs(style, window.size[1]) if is_strip else 1,
        inputs=WindowInputs.STRIP,
        outside=OutsideTaps.OMITTED,
        layout=OverlappingBlocks(FLOAT32, VECTOR),
        bias=BiasAdder.MICROKERNEL,
        requantization=Requantizer.MICROKERNEL,
    )


def _strips_of_row(
    style: AccumulateStyle, window: ConvWindow, outputs: int
) -> list[OutputStrips]:
    """Cut a row into strips; return none if one of them has no micro-kernel."""
    most = _contract(style, window).outputs
    count = divide_up(outputs, most)
    sizes = [most] * (count - 1) + [outputs - most * (count - 1)]
    if count == 2:
        sizes = [divide_up(outputs, 2), outputs // 2]
    found: list[OutputStrips] = []
    for first, size in zip(accumulate(sizes, initial=0), sizes, strict=False):
        strip = _strip(style, window, first, size)
        if strip.name not in INTRINSIC_MAKERS:
            return []
        each = OutputStrips(first, size, 1, strip.before, len(strip.reach) - 1)
        last = found[-1] if found else None
        if last and _strip(style, window, last.first, last.outputs) == strip:
            found[-1] = replace(last, times=last.times + 1)
        else:
            found.append(each)
    return found


def _strip(style: AccumulateStyle, window: ConvWindow, first: int, size: int) -> Strip:
    columns, stride = window.size[1], window.stride[1]
    begin = first * stride - window.padding[2]
    end = begin + (size - 1) * stride + columns
    after = max(end - window.input_size[1], 0)
    return Strip(style, size, columns, stride if size > 1 else 1, max(-begin, 0), after)


def _configs(style: AccumulateStyle, op: OpCall) -> Sequence[ScheduleConfig]:
    if op.input(0).dtype != FLOAT32 or channel_multiplier_of(op) != 1:
        return ()
    if op.input(0).shape[3] < VECTOR:
        return ()
    window = window_of(op, op.input(1).shape[1:3])
    if window.size[1] > MAX_COLUMNS or window.dilation[1] != 1:
        return ()
    rows = split_by_valid_taps(window, 0, op.output.shape[1])
    strips = _strips_of_row(style, window, op.output.shape[2])
    is_seen = all(span.taps for span in rows)
    is_small = 0 < len(strips) <= _MAX_SPANS and len(rows) <= _MAX_SPANS
    return (NO_CONFIG,) if is_seen and is_small else ()


def _build(
    style: AccumulateStyle, op: OpCall, config: ScheduleConfig, b: Kernel
) -> None:
    kernel = weights_of(op)[0]
    window = window_of(op, kernel.shape[:2])
    contract = _contract(style, window)
    lanes = contract.channels
    blocks = ChannelBlocks(kernel.shape[2], lanes)
    packed = contract.layout.pack(kernel.reshape(-1, blocks.channels).T)
    weights = b.constant("weights", packed, contract.layout.element)
    bias = b.constant("bias", blocks.pack(bias_of(op, "float32")), FLOAT32)
    activation = ACTIVATION_CODES[op.attributes(ActivationAttrs).activation]
    strips = _strips_of_row(style, window, op.output.shape[2])
    size, width = window.size[0] * window.size[1], window.size[1]
    row_step = window.dilation[0] * window.input_size[1] * blocks.channels
    for rows in split_by_valid_taps(window, 0, op.output.shape[1]):
        count = len(rows.taps)
        settings = [activation, count, row_step, blocks.channels]
        for tile in lane_tiles(b, op, blocks, rows, strips):
            strip = _strip(style, window, tile.strips.first, tile.strips.outputs)
            taps = (tile.block * size + rows.taps.start * width) * lanes
            w = b.pointer(weights, taps, count * width * lanes)
            biases = b.pointer(bias, tile.block * lanes, lanes)
            b.evaluate(strip.name, [tile.x, w, biases, *tile.outputs, *settings])


SCHEDULES = tuple(
    helium_float_schedule(
        f"helium.depthwise.{style}",
        "depthwise_conv2d",
        configs=partial(_configs, style),
        build=partial(_build, style),
        fuses=style == "fused",
    )
    for style in ACCUMULATE_STYLES
)
