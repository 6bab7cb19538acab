"""depthwise_conv2d on RISC-V vectors: channels in lanes, one or two pixels at a time."""

from collections.abc import Sequence
from textwrap import indent
from typing import Any

import numpy as np

from firmwright.base.dtypes import INT8
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.intrinsic import Intrinsic
from firmwright.ir.tir.schedule import Config, Schedule
from firmwright.ops.conv2d import channel_multiplier_of, requantization_of, weights_of
from firmwright.ops.conv_window import window_of
from firmwright.ops.kernel import Kernel, Nest
from firmwright.ops.requantize import per_tensor_quant
from firmwright.schedules.epilogue import fold_zero_point_into_bias
from firmwright.schedules.row_band import pixel_blocks, window_rows
from firmwright.schedules.rvv import row_moves, vector_requantize

_C = read_sections(__file__)

# Windows are read in place or from a padded copy of their rows. If a layer has few channels and a
# horizontal stride of 1, several adjacent pixels are one pixel of more channels: the values of each
# tap are adjacent, too, and weights and parameters are repeated. Two pixels share the weights.

_REPEATED_CHANNELS = 64


def _text(pixels: int) -> str:
    sums = vector_requantize.pixel_sums(pixels)
    start = "vint32m8_t sum1 = sum0;" if pixels > 1 else "(void)pixel_step;"
    products = [
        fill_text(_C["product"], p=p, at=f"from + {p} * pixel_step" if p else "from")
        for p in range(pixels)
    ]
    return fill_text(
        _C["text"],
        start=start,
        products=indent("\n".join(products), " " * 12),
        finish=indent(vector_requantize.requantize_text(sums, 8, "at", "vl"), "    "),
    )


def _sums(pixels: int, w: Any, x: Any, steps: tuple[int, ...]) -> Any:
    pixel_step, rows, columns, row_step, column_step, channels = steps
    p, i, j, c = np.ogrid[:pixels, :rows, :columns, :channels]
    values = np.asarray(x, np.int64)[p * pixel_step + i * row_step + j * column_step + c]
    weights = np.asarray(w, np.int64).reshape(rows, columns, channels)
    return np.einsum("pijc...,ijc->pc...", values, weights)


def _count(pixels: int, steps: Sequence[int]) -> int:
    _, rows, columns, _, _, channels = steps[:6]
    blocks = -(-channels // vector_requantize.NOMINAL_LANES)
    return blocks * (24 + 8 * pixels + 4 * rows + rows * columns * (4 + 4 * pixels))


def _intrinsic(pixels: int) -> Intrinsic:
    return vector_requantize.make_intrinsic(
        f"rvv_depthwise_{pixels}",
        pixels,
        ("pixel_step", "rows", "columns", "row_step", "column_step", "channels"),
        (_text(pixels), _C["portable"]),
        _sums,
        lambda steps: _count(pixels, steps),
        "Sums of a window times the weights of each channel, requantised.",
    )


INTRINSICS = (_intrinsic(1), _intrinsic(2))


def _configs(op: OpCall) -> Sequence[Config]:
    if not vector_requantize.is_int8_layer(op) or channel_multiplier_of(op) != 1:
        return ()
    return ({},) if vector_requantize.supports_requantize(requantization_of(op)) else ()


def _build(op: OpCall, config: Config, b: Kernel) -> None:
    kernel = weights_of(op)[0]
    rows, columns, channels = kernel.shape
    flat, width = kernel.reshape(-1, channels), op.output.shape[2]
    window = window_of(op, (rows, columns))
    is_dense = window.stride[1] == 1
    repeats = min(width, max(_REPEATED_CHANNELS // channels, 1)) if is_dense else 1
    lanes, block = channels * repeats, min(2, width // repeats)
    params, zero_point = requantization_of(op), per_tensor_quant(op.input(0)).zero_point
    weights = b.constant("weights", np.tile(flat, repeats), INT8)
    bias = fold_zero_point_into_bias(op, flat.T)
    tables = vector_requantize.parameter_tables(b, params, bias, repeats)
    pitch, column_step = window.stride[1] * channels, window.dilation[1] * channels
    with Nest() as enter:
        moves = row_moves.ROW_MOVES
        source, origin, row_step, row = enter(window_rows(b, window, zero_point, moves))
        at = enter(pixel_blocks(b, width, block * repeats))
        span = pitch * repeats
        reach = (block - 1) * span + (rows - 1) * row_step + (columns - 1) * column_step + lanes
        b.evaluate(
            f"rvv_depthwise_{block}",
            [
                b.pointer(weights, 0, weights.elements),
                b.pointer(source, at * pitch + origin, reach),
                *tables,
                b.pointer(b.y, (at + row * width) * channels, block * lanes, "w"),
                *(span, rows, columns, row_step, column_step, lanes),
                *vector_requantize.requantize_settings(params),
            ],
        )


SCHEDULES = (
    Schedule(
        "rvv.depthwise_conv2d.channels", "depthwise_conv2d", frozenset({"rvv"}), _configs, _build
    ),
)
