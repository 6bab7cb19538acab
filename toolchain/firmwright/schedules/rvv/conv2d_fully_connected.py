"""conv2d and fully_connected on RISC-V vectors: output channels in lanes."""

from collections.abc import Sequence

from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.schedule import Config, Schedule
from firmwright.ops import fully_connected
from firmwright.ops.conv2d import weights_of
from firmwright.ops.conv_window import kernel_window
from firmwright.ops.kernel import Kernel
from firmwright.schedules.epilogue import layer_requantization
from firmwright.schedules.rvv import vector_requantize
from firmwright.schedules.rvv.dot_product_loop import choose_loop
from firmwright.schedules.rvv.window_kernel import emit_window_kernel


def _configs(op: OpCall) -> Sequence[Config]:
    if not vector_requantize.is_int8_layer(op) or kernel_window(op).dilation[1] != 1:
        return ()
    if op.op == "fully_connected" and not fully_connected.has_int32_multiplier(op):
        return ()
    return ({},) if vector_requantize.supports_requantize(layer_requantization(op)) else ()


def _build(op: OpCall, config: Config, b: Kernel) -> None:
    kernel, window = weights_of(op), kernel_window(op)
    flat, rows = kernel.reshape(len(kernel), -1), window.size[0]
    pixels = op.output.elements // len(kernel) if window.pointwise else op.output.shape[2]
    loop = choose_loop(flat, rows, pixels)
    row = (flat.shape[1] // rows, 1, 1)
    emit_window_kernel(b, op, window, loop.name, flat, loop.pixels, row)


SCHEDULES = tuple(
    Schedule(f"rvv.{name}.channels", name, frozenset({"rvv"}), _configs, _build)
    for name in ("conv2d", "fully_connected")
)
