"""conv2d on the DSP extension: one function for layers of all shapes."""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import INT8, UINT16, UINT32, Array
from firmwright.base.rounding import divide_up
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.expr_evaluation import Ints
from firmwright.ir.tir.intrinsic import pointers
from firmwright.kernels.dsp.weight_packing import PAIRED, tap_order
from firmwright.ops.conv2d import requantization_of, weights_of
from firmwright.ops.conv_window import ConvWindow, kernel_window
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import has_weight_zero_point, per_tensor_quant
from firmwright.schedules.cortex_m_dsp import layer_tables
from firmwright.schedules.cortex_m_dsp.im2col import Im2colLayout
from firmwright.schedules.cortex_m_dsp.layer_tables import SHARED_CODE, SharedCode
from firmwright.schedules.epilogue import accumulator_bounds, fold_zero_point_into_bias
from firmwright.schedules.folded_requantize import OFFSET_FORM_BYTES, fit_offset_form
from firmwright.schedules.schedule_factories import dsp_schedule

# The windows of four pixels are packed as columns, and each pair of channels is
# multiplied by them, as in conv2d_fully_connected.py. A window row that is partly
# outside the input is copied first, with its padding, to the end of the columns.
#
# The table (layer_tables.py) has _HEADER words (see `_build`), the weights, and the
# offset form of each channel.

_SHIFT = 10
_OFFSET_BITS = 28
_HEADER = 5
_PIXELS = 4
_BYTES = ("zero", "rows", "window", "step_y", "step_x", "top", "left", "unused")
_NUMBERS = ("height", "width", "across", "channels", "outputs", "last")


def _layout(op: OpCall) -> Im2colLayout:
    return Im2colLayout(kernel_window(op), op.input(1).shape[-1])


def _configs(op: OpCall) -> Sequence[SharedCode]:
    x = op.input(0)
    batch, height, width, outputs = op.output.shape
    window = kernel_window(op)
    fits = (
        (x.dtype, batch, outputs % 2, window.dilation) == (INT8, 1, 0, (1, 1))
        and max(window.padding[2:]) < window.size[1]
        and max(*window.size, *window.stride, *window.padding) < 1 << 8
        and height * width >= _PIXELS
        and max(height * width, outputs, *x.shape, _layout(op).words) <= UINT16.max
        and not has_weight_zero_point(op)
        and _table(op) is not None
    )
    return (SHARED_CODE,) if fits else ()


def _table(op: OpCall) -> Array | None:
    """Return the words of weights and offset forms, or None if no form is exact."""
    weights = weights_of(op).astype(np.int64)
    flat = weights.reshape(len(weights), -1)
    bias = fold_zero_point_into_bias(op, flat)
    low, high = accumulator_bounds(bias, flat)
    params = requantization_of(op)
    records = fit_offset_form(params, low, high, bias, _SHIFT, _OFFSET_BITS)
    layout = _layout(op).of_weights(2, PAIRED)
    if records is None or not layout.do_weights_fit(flat):
        return None
    ends = np.pad(records.reshape(-1), (0, -records.size % 4))
    packed = layout.pack(flat)
    return np.concatenate([packed.reshape(-1), ends.view("<u4")])


def _build(op: OpCall, config: SharedCode, b: Kernel) -> None:
    layout, table = _layout(op), _table(op)
    assert table is not None
    window = layout.window
    top, _, left, _ = window.padding
    zero_point = per_tensor_quant(op.input(0)).zero_point
    small = [zero_point & 255, *window.size, *window.stride, top, left, 0]
    _, rows, across, outputs = b.y.shape
    sizes = (*window.input_size, across)
    if window.pointwise:  # like one row
        sizes = (1, rows * across, rows * across)
    last = rows * across - _PIXELS
    numbers = [*sizes, layout.channels, outputs, last]
    wide = np.array(numbers, "<u2").view(np.uint8)
    header = np.concatenate([np.array(small, np.uint8), wide])
    words = b.constant("table", np.concatenate([header.view("<u4"), table]), UINT32)
    edge = divide_up(layout.row_elements, 4)
    columns = b.allocate("columns", UINT32, (layout.words * _PIXELS + edge,), 8)
    at = np.minimum(np.arange(0, last + _PIXELS, _PIXELS), last)
    reads = _ranges_of_blocks(window, layout.channels, at, across)
    writes = (at * outputs, (at + _PIXELS) * outputs)
    layer_tables.emit_layer(b, "conv2d_shared", columns, words, reads, writes)


def _ranges_of_blocks(
    window: ConvWindow, channels: int, at: Ints, across: int
) -> tuple[Ints, Ints]:
    """Return the first and end elements that the blocks from pixels `at` read."""
    height, width = window.input_size
    oy, ox = np.divmod(at[:, None] + np.arange(_PIXELS), across)
    top = oy * window.stride[0] - window.padding[0]
    left = ox * window.stride[1] - window.padding[2]
    first = np.maximum(top, 0) * width + np.maximum(left, 0)
    bottom = np.minimum(top + window.size[0], height) - 1
    end = bottom * width + np.minimum(left + window.size[1], width)
    return first.min(axis=1) * channels, end.max(axis=1) * channels


def _meaning(columns: Array, table: Array, x: Array, y: Array) -> tuple[Array, Array]:
    words = layer_tables.first_lane(table).astype("<u4")
    head = words[:_HEADER].view(np.uint8)
    n = dict(zip(_BYTES, head[:8].tolist(), strict=True))
    n |= dict(zip(_NUMBERS, head[8:].view("<u2").tolist(), strict=True))
    outputs = n["outputs"]
    run = n["window"] * n["channels"]
    rows = n["rows"]
    steps = n["rows"] * ((run + 1) // 2)
    end = _HEADER + outputs // 2 * steps
    lanes = words[_HEADER:end].view("<i2")
    weights = np.stack(PAIRED.unpack(lanes), axis=1).reshape(outputs // 2, -1, 2)
    weights = weights.transpose(0, 2, 1).reshape(outputs, rows, -1)
    places = np.stack([tap_order(run).reshape(-1)] * rows)
    zero = np.uint8(n["zero"]).astype(np.int8)
    elements = layer_tables.first_lane(x).astype(np.int64)
    image = elements.reshape(n["height"], n["width"], -1)
    below = rows * n["step_y"]
    right = n["window"] * n["step_x"]
    reach = [(n["top"], below), (n["left"], right), (0, 0)]
    padded = np.pad(image, reach, constant_values=int(zero))
    sums = []
    for pixel in range(n["last"] + _PIXELS):
        row, across = divmod(pixel, n["across"])
        oy = row * n["step_y"]
        ox = across * n["step_x"]
        window = padded[oy : oy + rows, ox : ox + n["window"]].reshape(rows, -1)
        column = np.take_along_axis(np.pad(window, ((0, 0), (0, 1))), places, axis=1)
        sums.append((weights * column).sum(axis=(1, 2)))
    octets = words[end:].view(np.uint8)[: OFFSET_FORM_BYTES * outputs]
    records = octets.reshape(outputs, OFFSET_FORM_BYTES)
    totals = np.array(sums)
    results = layer_tables.requantize_sums(totals, records, _SHIFT, _OFFSET_BITS)
    return columns, results.reshape(np.shape(y))


def _count(args: Sequence[int]) -> int:
    columns, table, inputs, outputs = args
    # A ninth of the columns is for a row at the border, or less.
    words = columns * 2 / 9
    channels = max((table - _HEADER) / (words / 2 + 1.75), 1)
    pixels = outputs / channels
    is_window = abs(inputs - 2 * words * pixels) > words * pixels
    packing = (12 if is_window else 4) * words + 55
    return int(outputs * (1.65 * words + 8) + pixels * packing)


INTRINSICS = (
    layer_tables.layer_intrinsic(
        __file__,
        "conv2d_shared",
        (*pointers(UINT32, "rw", columns=_PIXELS), *pointers(UINT32, table=_HEADER)),
        _meaning,
        _count,
        265,
    ),
)
SCHEDULES = (
    dsp_schedule(
        "dsp.conv2d.shared", "conv2d", configs=_configs, build=_build, goal="size"
    ),
)
