"""depthwise_conv2d on the DSP extension: one function for layers of all shapes (3 x 3 windows)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from firmwright.base.dtypes import INT8, INT32, UINT8, UINT16, Array
from firmwright.base.text_sections import read_sections
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import maximum, minimum
from firmwright.ir.tir.intrinsic import Intrinsic, inputs, pointers
from firmwright.ir.tir.schedule import Config
from firmwright.ops.conv2d import channel_multiplier_of, requantization_of, weights_of
from firmwright.ops.conv_window import window_of
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import has_weight_zero_point, per_tensor_quant
from firmwright.schedules.constant_channels import constant_channel_values
from firmwright.schedules.epilogue import accumulator_bounds, fold_zero_point_into_bias
from firmwright.schedules.folded_requantize import fit_offset_form
from firmwright.schedules.schedule_factories import dsp_schedule

# A band of input rows is copied with its padding; the padding right of a row is also that left of
# the next one. The window of one channel then slides over the band as if this were one long row:
# outputs that span two rows are ignored. Each output replaces input that was read, with an offset
# of 128 that is subtracted when rows are copied to the output. With stride 2, the odd input rows
# follow the even ones, so that windows of adjacent output rows are one row apart, too.
#
# What differs between layers is in a table, since parameters take code in each call: _HEADER bytes
# (see `_build`), then the weights, offset and multiplier of each channel.

_SHIFT = 8
_HEADER = 12
_WORD = 4
_TAPS = (0, 1, 3, 4, 2, 6, 5, 7, 8)
"""The place in the window of each weight in the table."""
_ODD_ROWS = 4
"""Place of the first odd input row in a band."""
_BAND_BYTES = 5120
"""Maximum size of a band of more than one output row."""


def _configs(op: OpCall) -> Sequence[Config]:
    x, window = op.input(0), window_of(op, op.input(1).shape[1:3])
    fits = (
        (x.dtype, x.shape[0], window.size, window.dilation) == (INT8, 1, (3, 3), (1, 1))
        and window.stride in ((1, 1), (2, 2))
        and channel_multiplier_of(op) == 1
        and op.output.shape[2] * x.shape[3] >= _WORD
        and not has_weight_zero_point(op)
        and _band(op)[2] <= UINT16.max
        and _records(op) is not None
    )
    return ({"code": "shared"},) if fits else ()


def _band(op: OpCall) -> tuple[int, int, int]:
    """Return the output rows of a band, the distance of its rows in columns, and its bytes."""
    _, height, width, channels = op.output.shape
    window = window_of(op, (3, 3))
    stride, left, inside = window.stride[0], window.padding[2], window.input_size[1]
    reach = max((width - 1) * stride + 3, left + inside)
    pitch = -(-(reach - min(left, reach - left - inside)) // stride) * stride
    most, added = (height, 2) if stride == 1 else (min(height, _ODD_ROWS), _ODD_ROWS)
    sizes = {n: ((n + added) * pitch + left) * channels for n in (1, *range(2, most))}
    rows = max(n for n in sizes if height % n == 0 and (n == 1 or sizes[n] <= _BAND_BYTES))
    return rows, pitch, sizes[rows]


def _records(op: OpCall) -> Array | None:
    """Return the bytes of each channel in the table, or None if there is no exact form."""
    weights = weights_of(op).reshape(9, -1).T.astype(np.int64)
    params, bias = requantization_of(op), fold_zero_point_into_bias(op, weights)
    low, high = accumulator_bounds(bias, weights)
    constant = list(constant_channel_values(params, low, high))
    weights[constant], low[constant], high[constant] = 0, bias[constant], bias[constant]
    fitted = fit_offset_form(params, low, high, bias, _SHIFT)
    if fitted is None:
        return None
    taps, numbers = weights[:, _TAPS].astype(np.int8), np.stack(fitted, axis=1).astype("<i4")
    return np.concatenate([taps.view(np.uint8), numbers.view(np.uint8)], axis=1)


def _build(op: OpCall, config: Config, b: Kernel) -> None:
    window, records, x = window_of(op, (3, 3)), _records(op), b.input(0)
    (top, _, left, _), (height, input_width) = window.padding, window.input_size
    (rows, pitch, size), stride, (width, channels) = _band(op), window.stride[0], b.y.shape[2:]
    zero_point = per_tensor_quant(op.input(0)).zero_point
    last_column = (rows - 1) * pitch // stride + width + 2 - stride
    numbers = [zero_point & 255 | stride << 8, last_column]
    numbers += [n * channels for n in (1, pitch, left, width)]
    assert records is not None
    header = np.array(numbers, "<u2").view(np.uint8)
    table = b.constant("table", np.concatenate([header, records.reshape(-1)]), UINT8)
    band, line = b.allocate("band", INT8, (size,)), input_width * channels
    outputs = rows * width * channels
    copy, head = b.pointer(band, 0, size, "rw"), b.pointer(table, 0, _HEADER)
    padding, step = b.variable("padding", top), b.variable("step", rows * stride)
    with b.for_("part", b.y.shape[1] // rows) as part:
        with b.for_("ky", (rows - 1) * stride + 3) as ky:
            iy = b.let("iy", part * step + ky - padding)
            inside = b.let("inside", maximum(minimum(iy, height - 1), 0))
            place = ky.cast(INT32), (iy - inside).cast(INT32)
            source = b.pointer(x, inside * line, line)
            b.evaluate("depthwise_row", [copy, head, source, line, *place])
        y = b.pointer(b.y, part * outputs, outputs, "w")
        b.evaluate("depthwise_band", [copy, b.pointer(table, 0, table.elements), y, outputs])


def _first_lane(data: Any) -> Array:
    return np.reshape(data, (len(data), -1))[:, 0].copy()


def _header(table: Any) -> list[int]:
    """Return zero point, stride, and the other numbers of a table."""
    return [*_first_lane(table)[:2].tolist(), *_first_lane(table)[2:_HEADER].view("<u2").tolist()]


def _line(row: int, stride: int) -> int:
    """Return the place of an input row in the band."""
    return row if stride == 1 else row % 2 * _ODD_ROWS + row // 2


def _row_meaning(band: Any, table: Any, x: Any, size: Any, ky: Any, outside: Any) -> Any:
    zero_point, stride, _, _, pitch, left, _ = _header(table)
    start, row = _line(int(np.max(ky)), stride) * pitch, np.array(band)
    row[start : start + pitch + left] = np.uint8(zero_point).astype(np.int8)
    if not np.any(outside):
        row[start + left : start + left + len(x)] = x
    return row


def _band_meaning(band: Any, table: Any, y: Any, outputs: Any) -> tuple[Any, Any]:
    _, stride, _, channels, pitch, _, row = _header(table)
    records = np.reshape(_first_lane(table)[_HEADER:], (channels, -1))
    offset, multiplier = records[:, 9:].copy().view("<i4").astype(np.int64).T
    weights, pixels = (a.view(np.int8).astype(np.int64) for a in (records, _first_lane(band)))
    line, place = np.divmod(np.arange(len(y)), row)
    channel = place % channels
    start, sums = line * pitch + (place - channel) * stride + channel, offset[channel]
    for number, tap in enumerate(_TAPS):
        at = start + _line(tap // 3, stride) * pitch + tap % 3 * channels
        sums += 256 * pixels[at] * weights[channel, number]
    scaled = np.clip(sums * multiplier[channel] >> (32 + _SHIFT), 0, 255) - 128
    return band, scaled.astype(np.int8).reshape(np.shape(y))


_C = read_sections(__file__)
_SHARED = (*pointers(INT8, "rw", band=1), *pointers(UINT8, table=_HEADER))
INTRINSICS = (
    Intrinsic(
        "depthwise_row",
        (*_SHARED, *pointers(INT8, x=1), *inputs(INT32, "bytes", "ky", "outside")),
        _row_meaning, _C["row"], "Copies a row of the input, or of padding, to the band.",
        count=lambda args: 40 + args[3] // 2,
    ),
    Intrinsic(
        "depthwise_band",
        (*_SHARED, *pointers(INT8, "w", y=1), *inputs(INT32, "outputs")),
        _band_meaning, _C["portable"], "Computes the output rows of a band.",
        requires="dsp", text={"gnu": _C["text"]}, definitions=(_C["assembly"],),
        count=lambda args: 20 * args[3],
    ),
)  # fmt: skip
SCHEDULES = (
    dsp_schedule(
        "dsp.depthwise.shared", "depthwise_conv2d", configs=_configs, build=_build, goal="size"
    ),
)
