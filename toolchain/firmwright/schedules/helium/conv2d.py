"""conv2d on Helium: GEMM tiles of four channels times two pixels over int8 columns."""

from collections.abc import Sequence
from dataclasses import replace

from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.conv2d import weight_offsets, weights_of
from firmwright.ops.conv_window import window_of
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import per_tensor_quant, weight_zero_point
from firmwright.schedules.epilogue import fold_zero_point_into_bias
from firmwright.schedules.helium import int8_dot, vector_requantize
from firmwright.schedules.helium.column_runs import ConvolutionInput
from firmwright.schedules.helium.dot_product_loop import WeightConfig, weight_configs
from firmwright.schedules.helium.pixel_pairs import convolve_two_pixels, flat_weights
from firmwright.schedules.schedule_factories import helium_schedule


def _configs(op: OpCall) -> Sequence[WeightConfig]:
    if not vector_requantize.supports_int8_layer(op):
        return ()
    return weight_configs(op, int8_dot.PAIR_INT4.layout)


def _build(op: OpCall, config: WeightConfig, b: Kernel) -> None:
    kernel = weights_of(op)
    flat = flat_weights(op)
    zero_point = weight_zero_point(op)
    if config.weights == "int4":
        microkernel = int8_dot.PAIR_INT4
    elif zero_point:
        microkernel = int8_dot.PAIR_INT8_WITH_SHARES
    else:
        microkernel = int8_dot.PAIR_INT8
    blocks = microkernel.blocks(len(flat))
    params = vector_requantize.layer_parameters(op)
    bias = fold_zero_point_into_bias(op, weight_offsets(op))
    table = vector_requantize.parameter_table(params, bias, blocks)
    settings = vector_requantize.epilogue_settings(params, blocks.stored)
    gemm = microkernel.gemm(b, flat, {"parameters": table}, settings)
    gemm = replace(gemm, share=int8_dot.share_of(zero_point, gemm.taps))
    zero_point = per_tensor_quant(op.input(0)).zero_point
    source = ConvolutionInput(b.input(0), window_of(op, kernel.shape[1:3]), zero_point)
    convolve_two_pixels(b, source, gemm, op.output.shape)


SCHEDULES = vector_requantize.int8_schedules(
    helium_schedule(
        "helium.conv2d.im2col",
        "conv2d",
        configs=_configs,
        build=_build,
        takes_weight_zero_point=True,
    ),
)
