"""conv2d on Helium with windows of at most sixteen values: weights stay in registers.

A call computes four channels of a run of pixels (column_runs.py). The weights of each
channel are one vector, which the loop over pixels does not load again:

    w0 ... w3, bias, multiplier, shift            before the loop
    column: 4 VMLADAV, 2 VMOV; requantize; store  for each pixel
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from textwrap import indent

from firmwright.base.dtypes import BOOL, INT8, INT32, UINT32
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.intrinsic import Intrinsic
from firmwright.kernels.channel_blocks import ChannelBlocks
from firmwright.kernels.contract import BiasAdder, Requantizer, TileContract
from firmwright.kernels.isa import mve
from firmwright.kernels.isa.c_numbers import less
from firmwright.kernels.isa.instruction import RegisterClass, RegisterPlace
from firmwright.kernels.isa.mve_lanes import vctp8q, vmladavq_s8
from firmwright.kernels.isa.mve_memory import MVE_MEMORY
from firmwright.kernels.mve.dot_products import BYTES_PER_STEP
from firmwright.kernels.mve.weight_layout import WeightRows
from firmwright.kernels.vector_program import VectorBuilder, VectorProgram
from firmwright.kernels.vector_text import vector_text
from firmwright.ops.conv2d import weight_offsets, weights_of
from firmwright.ops.conv_window import window_of
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import has_weight_zero_point, per_tensor_quant
from firmwright.ops.schedule import NO_CONFIG, ScheduleConfig
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.block_gemm import BlockGemm
from firmwright.schedules.epilogue import fold_zero_point_into_bias
from firmwright.schedules.helium import int8_dot, vector_requantize
from firmwright.schedules.helium.column_runs import (
    ConvolutionInput,
    adjacent_weights,
    are_columns_adjacent,
    for_column_runs,
)
from firmwright.schedules.helium.pixel_runs import PixelRuns
from firmwright.schedules.helium.vector_ending import VECTOR
from firmwright.schedules.schedule_factories import helium_schedule

LAYOUT = WeightRows(VECTOR)
_ENDING = int8_dot.ENDING
_BYTES = RegisterPlace(RegisterClass.VECTOR, INT8, BYTES_PER_STEP)
_WEIGHTS = tuple(f"w{channel}" for channel in range(VECTOR))


def _text() -> str:
    """Return the C of all pixels."""
    first = VectorBuilder("weights")
    w = first.pointer("w", INT8)
    for channel, name in enumerate(_WEIGHTS):
        first.named(name, MVE_MEMORY.rows["vldrbq_s8"], w[BYTES_PER_STEP * channel])
    first.named("inside", vctp8q, first.number("(uint32_t)taps", UINT32))
    return f"""\
{vector_text(first.build_vectors())}
{_ENDING.loads(0)}
for (int32_t left = count; left > 0; --left) {{
    int8x16_t column;
{indent(vector_text(sums_of_column()), "    ")}
{indent(_ENDING.finish("total", "y", "lanes"), "    ")}
    x += step;
    y += channels;
    /* Keep the pointers: post-increments are free, a common index is not. */
    __asm__("" : "+r"(x), "+r"(y));
}}"""


def sums_of_column() -> VectorProgram:
    """Return the sums of four channels as the vector `total`."""
    k = VectorBuilder("sums_of_column")
    x, column = k.pointer("x", INT8), k.variable("column", _BYTES)
    predicate = RegisterPlace(RegisterClass.PREDICATE, BOOL, BYTES_PER_STEP)
    with k.when(k(less, k.number("taps"), BYTES_PER_STEP)):
        inside = k.variable("inside", predicate)
        k(MVE_MEMORY.rows["vldrbq_z_s8"], x[0], inside, into=column)
    with k.otherwise():
        k(MVE_MEMORY.rows["vldrbq_s8"], x[0], into=column)
    weights = [k.variable(name, _BYTES) for name in _WEIGHTS]
    sums = [k(vmladavq_s8, column, vector) for vector in weights]
    total = k.variable("total", RegisterPlace(RegisterClass.VECTOR, INT32, VECTOR))
    k(mve.vmov_words, *sums, into=total)
    return k.build_vectors()


_PORTABLE = f"""\
for (int32_t i = 0; i < count; ++i) {{
    for (int32_t c = 0; c < lanes; ++c) {{
        int32_t sum = 0;
        for (int32_t tap = 0; tap < taps; ++tap) {{
            sum += w[{BYTES_PER_STEP} * c + tap] * x[i * step + tap];
        }}
        y[i * channels + c] = {_ENDING.call("sum", is_single=True)};
    }}
}}"""


def _count(names: Sequence[str], args: Sequence[int]) -> int:
    given = dict(zip(names, args, strict=True))
    is_tail = given["taps"] < BYTES_PER_STEP
    pixel = 1 + is_tail + VECTOR + 2 + _ENDING.instructions(given) + 1
    return 22 + given["count"] * pixel


_RUNS = PixelRuns(LAYOUT, _ENDING)
RUN = Intrinsic(
    "mve_short_columns_int8",
    _RUNS.operands(LAYOUT.step_bytes),
    _RUNS.meaning,
    _PORTABLE,
    "Products of four channels with the columns of `count` pixels.",
    requires=_ENDING.requires,
    text={"gnu": _text()},
    definitions=(KEEP_STORES,),
    count=partial(_count, _RUNS.names),
    calls=_ENDING.calls,
)
INTRINSICS = (RUN,)


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    if not vector_requantize.supports_int8_layer(op) or has_weight_zero_point(op):
        return ()
    _, height, width, channels = op.input(1).shape
    window = window_of(op, (height, width))
    is_short = height * width * channels <= BYTES_PER_STEP
    is_run = are_columns_adjacent(window, channels)
    return (NO_CONFIG,) if is_short and is_run else ()


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    kernel = weights_of(op)
    blocks = ChannelBlocks(len(kernel), VECTOR)
    packed = LAYOUT.pack(blocks.rows(adjacent_weights(kernel)))
    weights = b.constant("weights", packed, INT8)
    params = vector_requantize.layer_parameters(op)
    bias = fold_zero_point_into_bias(op, weight_offsets(op))
    table = vector_requantize.parameter_table(params, bias, blocks)
    parameters = b.constant("parameters", table, INT32)
    zero_point = per_tensor_quant(op.input(0)).zero_point
    window = window_of(op, kernel.shape[1:3])
    source = ConvolutionInput(b.input(0), window, zero_point)
    settings = vector_requantize.epilogue_settings(params, blocks.stored)
    tile = TileContract(VECTOR, 1, LAYOUT, BiasAdder.EPILOGUE, Requantizer.MICROKERNEL)
    gemm = BlockGemm(
        tile, _name, len(kernel), weights, [parameters], settings, kernel[0].size
    )
    gemm = replace(gemm, run_microkernel=_name)
    for_column_runs(b, source, op.output.shape, partial(gemm.emit_run, b))


def _name(taps: int) -> str:
    return RUN.name


SCHEDULES = vector_requantize.int8_schedules(
    helium_schedule(
        "helium.conv2d.short_columns", "conv2d", configs=_configs, build=_build
    ),
)
