"""conv2d and fully_connected on RISC-V vectors: output channels in lanes."""

from collections.abc import Sequence

from firmwright.base.dtypes import INT8
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.schedule import Config, Schedule
from firmwright.ops import fully_connected
from firmwright.ops.conv2d import weights_of
from firmwright.ops.conv_window import kernel_window
from firmwright.ops.kernel import Kernel, Nest
from firmwright.ops.requantize import per_tensor_quant
from firmwright.schedules.epilogue import fold_zero_point_into_bias, layer_requantization
from firmwright.schedules.row_band import pixel_blocks, window_rows
from firmwright.schedules.rvv import row_moves, vector_requantize
from firmwright.schedules.rvv.dot_product_loop import choose_loop

# The micro-kernel reads windows in place, row by row, or from a padded copy of the rows of one
# output row. The last block of pixels overlaps its predecessor.


def _configs(op: OpCall) -> Sequence[Config]:
    if not vector_requantize.is_int8_layer(op) or kernel_window(op).dilation[1] != 1:
        return ()
    if op.op == "fully_connected" and not fully_connected.has_int32_multiplier(op):
        return ()
    return ({},) if vector_requantize.supports_requantize(layer_requantization(op)) else ()


def _build(op: OpCall, config: Config, b: Kernel) -> None:
    kernel, window = weights_of(op), kernel_window(op)
    outputs, height = len(kernel), window.size[0]
    flat = kernel.reshape(outputs, -1)
    params, zero_point = layer_requantization(op), per_tensor_quant(op.input(0)).zero_point
    weights = b.constant("weights", flat.T, INT8)
    tables = vector_requantize.parameter_tables(b, params, fold_zero_point_into_bias(op, flat))
    step, run = window.stride[1] * kernel.shape[-1], flat.shape[1] // height
    pixels = op.output.elements // outputs if window.pointwise else op.output.shape[2]
    loop = choose_loop(flat, height, pixels)
    with Nest() as enter:
        source, row_step, start, first = b.input(0), 0, None, None
        if not window.pointwise:
            rows = window_rows(b, window, zero_point, row_moves.ROW_MOVES)
            source, start, row_step, row = enter(rows)
            first = row * pixels
        at = enter(pixel_blocks(b, pixels, loop.pixels))
        reach = (loop.pixels - 1) * step + (height - 1) * row_step + run
        place = at if first is None else at + first
        b.evaluate(
            loop.name,
            [
                b.pointer(weights, 0, weights.elements),
                b.pointer(source, at * step if start is None else at * step + start, reach),
                *tables,
                b.pointer(b.y, place * outputs, loop.pixels * outputs, "w"),
                *(step, height, run, row_step, outputs),
                *vector_requantize.requantize_settings(params),
            ],
        )


SCHEDULES = tuple(
    Schedule(f"rvv.{name}.channels", name, frozenset({"rvv"}), _configs, _build)
    for name in ("conv2d", "fully_connected")
)
