"""depthwise_conv2d 3x3 on the DSP extension: one function for layers of all shapes."""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import INT8, UINT8, UINT16, Array
from firmwright.base.rounding import round_up
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.intrinsic import pointers
from firmwright.ops.conv2d import channel_multiplier_of, requantization_of, weights_of
from firmwright.ops.conv_window import window_of
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import has_weight_zero_point, per_tensor_quant
from firmwright.schedules.cortex_m_dsp import layer_tables
from firmwright.schedules.cortex_m_dsp.layer_tables import SHARED_CODE, SharedCode
from firmwright.schedules.epilogue import accumulator_bounds, fold_zero_point_into_bias
from firmwright.schedules.folded_requantize import fit_offset_form
from firmwright.schedules.schedule_factories import dsp_schedule
from firmwright.schedules.skip_constant_channels import constant_channel_values

# A band of input rows is copied with its padding; the padding right of a row is also
# that left of the next one. The window of one channel then slides over the band as if
# this were one long row: outputs that span two rows are ignored. Each output replaces
# input that was read, with an offset of 128 that is subtracted when rows are copied to
# the output. With stride 2, the odd input rows follow the even ones, so that windows of
# adjacent output rows are one row apart, too.
#
# The table (layer_tables.py) has _HEADER bytes (see `_build`), then the weights and the
# offset form of each channel.

_SHIFT = 8
_OFFSET_BITS = 29
_HEADER = 20
_WORD = 4
_TAPS = (0, 1, 3, 4, 2, 6, 5, 7, 8)
"""The place in the window of each weight in the table."""
_ODD_ROWS = 4
"""Place of the first odd input row in a band."""
_BAND_BYTES = 5120
"""Maximum size of a band of more than one output row."""


def _configs(op: OpCall) -> Sequence[SharedCode]:
    x = op.input(0)
    window = window_of(op, op.input(1).shape[1:3])
    fits = (
        (x.dtype, x.shape[0], window.size, window.dilation) == (INT8, 1, (3, 3), (1, 1))
        and window.stride in ((1, 1), (2, 2))
        and channel_multiplier_of(op) == 1
        and op.output.shape[2] * x.shape[3] >= _WORD
        and not has_weight_zero_point(op)
        and _band(op)[2] <= UINT16.max
        and _records(op) is not None
    )
    return (SHARED_CODE,) if fits else ()


def _band(op: OpCall) -> tuple[int, int, int]:
    """Return a band's output rows, the distance of its rows in columns, its bytes."""
    _, height, width, channels = op.output.shape
    window = window_of(op, (3, 3))
    stride = window.stride[0]
    left = window.padding[2]
    inside = window.input_size[1]
    reach = max((width - 1) * stride + 3, left + inside)
    pitch = round_up(reach - min(left, reach - left - inside), stride)
    most, added = (height, 2) if stride == 1 else (min(height, _ODD_ROWS), _ODD_ROWS)
    rows = 1
    size = ((1 + added) * pitch + left) * channels
    for count in range(2, most):
        larger = ((count + added) * pitch + left) * channels
        if height % count == 0 and larger <= _BAND_BYTES:
            rows, size = count, larger
    return rows, pitch, size


def _records(op: OpCall) -> Array | None:
    """Return the bytes of each channel in the table, or None if no form is exact."""
    weights = weights_of(op).reshape(9, -1).T.astype(np.int64)
    params = requantization_of(op)
    bias = fold_zero_point_into_bias(op, weights)
    low, high = accumulator_bounds(bias, weights)
    constant = list(constant_channel_values(params, low, high))
    weights[constant] = 0
    low[constant] = high[constant] = bias[constant]
    forms = fit_offset_form(params, low, high, bias, _SHIFT, _OFFSET_BITS)
    taps = weights[:, _TAPS].astype(np.int8).view(np.uint8)
    return None if forms is None else np.concatenate([taps, forms], axis=1)


def _build(op: OpCall, config: SharedCode, b: Kernel) -> None:
    window = window_of(op, (3, 3))
    records = _records(op)
    top, _, left, _ = window.padding
    height, input_width = window.input_size
    rows, pitch, size = _band(op)
    stride = window.stride[0]
    _, output_height, width, channels = b.y.shape
    zero_point = per_tensor_quant(op.input(0)).zero_point
    last_column = (rows - 1) * pitch // stride + width + 2 - stride
    numbers = [zero_point & 255 | stride << 8, last_column]
    numbers += [n * channels for n in (1, pitch, left, width)]
    numbers += [rows | top << 8, output_height // rows, height, input_width * channels]
    assert records is not None
    header = np.array(numbers, "<u2").view(np.uint8)
    table = b.constant("table", np.concatenate([header, records.reshape(-1)]), UINT8)
    band = b.allocate("band", INT8, (size,))
    part = np.arange(output_height // rows)
    first = np.maximum(part * rows * stride - top, 0)
    end = np.minimum((part * rows + rows - 1) * stride + 3 - top, height)
    outputs = rows * width * channels
    line = input_width * channels
    reads = (first * line, end * line)
    writes = (part * outputs, (part + 1) * outputs)
    layer_tables.emit_layer(b, "depthwise_shared", band, table, reads, writes)


def _meaning(band: Array, table: Array, x: Array, y: Array) -> tuple[Array, Array]:
    data = layer_tables.first_lane(table)
    zero, stride, rows, top = map(int, data[[0, 1, 12, 13]])
    numbers = data[2:_HEADER].view("<u2").tolist()
    _, channels, _, left, row, _, parts, height, line = numbers
    records = data[_HEADER:].reshape(channels, -1)
    weights = records.view(np.int8).astype(np.int64)
    elements = layer_tables.first_lane(x).astype(np.int64)
    image = elements.reshape(height, line // channels, channels)
    margin = ((top, 3 * stride), (left // channels, 3 * stride), (0, 0))
    padded = np.pad(image, margin, constant_values=int(np.uint8(zero).astype(np.int8)))
    output_rows = parts * rows
    width = row // channels
    sums = np.zeros((output_rows, width, channels), np.int64)
    for number, tap in enumerate(_TAPS):
        strided = padded[tap // 3 :: stride, tap % 3 :: stride]
        sums += strided[:output_rows, :width] * weights[:, number]
    results = layer_tables.requantize_sums(sums, records[:, 9:], _SHIFT, _OFFSET_BITS)
    return band, results.reshape(np.shape(y))


def _count(args: Sequence[int]) -> int:
    band, table, inputs, outputs = args
    channels = max((table - _HEADER) // 16, 1)
    column = 15 if inputs < 2 * outputs else 23.5
    waste = 1 + 1.3 * (channels / max(outputs, 1)) ** 0.5  # outputs that span two rows
    parts = max(1.2 * inputs / band, 1)
    work = 300 + 40 * channels * parts + outputs * (column * waste + 3)
    return int(work + inputs // 2)


INTRINSICS = (
    layer_tables.layer_intrinsic(
        __file__,
        "depthwise_shared",
        (*pointers(INT8, "rw", band=1), *pointers(UINT8, table=_HEADER)),
        _meaning,
        _count,
        168,
    ),
)
SCHEDULES = (
    dsp_schedule(
        "dsp.depthwise.shared",
        "depthwise_conv2d",
        configs=_configs,
        build=_build,
        goal="size",
    ),
)
