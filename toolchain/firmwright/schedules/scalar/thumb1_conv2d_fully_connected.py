"""conv2d and fully_connected on Armv6-M: eight channels times one pixel."""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import INT8, INT32, UINT8, Array
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.kernels.assembly import (
    body_text,
    executed_instructions,
    macro_definitions,
)
from firmwright.kernels.contract import sums_of_products
from firmwright.kernels.instruction_intrinsics import instruction_intrinsic
from firmwright.kernels.isa import thumb1
from firmwright.kernels.portable import called_intrinsics, portable_text
from firmwright.kernels.scalar.gemm import THUMB1_ROWS, thumb1_forms
from firmwright.ops import fully_connected
from firmwright.ops.conv2d import weight_offsets
from firmwright.ops.conv_window import kernel_window
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import per_tensor_quant, weight_zero_point
from firmwright.ops.schedule import NO_CONFIG, ScheduleConfig
from firmwright.schedules.epilogue import layer_requantization
from firmwright.schedules.scalar import gemm_kernel
from firmwright.schedules.scalar.conv2d_fully_connected import pack_columns
from firmwright.schedules.scalar.gemm_kernel import ScalarGemm
from firmwright.schedules.schedule_factories import thumb1_schedule

# Micro-kernels multiply by weights that are stored with 128 added, and the caller
# subtracts 128 (plus the weights' zero point) times the column's sum.

ROWS = THUMB1_ROWS
WEIGHT_OFFSET = 128
MAX_UNROLL = 4


def _meaning(w: Array, x: Array, start: Array, _: Array, steps: int) -> Array:
    weights = np.asarray(w)[: ROWS * steps].reshape(steps, ROWS, *w.shape[1:])
    columns = np.asarray(x)[:steps, None]
    return np.stack(sums_of_products(weights, columns, start[:ROWS]))


def unroll_factor(steps: int) -> int:
    return max(n for n in range(1, MAX_UNROLL + 1) if steps % n == 0)


def microkernel_name(steps: int) -> str:
    return f"thumb1_8x1_{unroll_factor(steps)}"


_DOC = (
    "Products of 8 rows of weights, each 128 too large, with a column of `steps` "
    "elements."
)


def _block(unroll: int) -> Intrinsic:
    forms = thumb1_forms(unroll)
    return Intrinsic(
        name=f"thumb1_8x1_{unroll}",
        operands=(
            *pointers(UINT8, w=ROWS * unroll),
            *pointers(INT8, x=unroll),
            *pointers(INT32, start=ROWS),
            *pointers(INT32, "w", sums=ROWS),
            *immediates("steps"),
        ),
        meaning=_meaning,
        portable=portable_text(forms.wide),
        doc=_DOC,
        requires="thumb1",
        text={"gnu": body_text(forms)},
        definitions=macro_definitions(forms),
        instructions=executed_instructions(forms, unroll),
        count=lambda args: executed_instructions(forms, args[-1]),
        calls=called_intrinsics(forms.wide),
    )


INTRINSICS = (
    *map(_block, range(1, MAX_UNROLL + 1)),
    instruction_intrinsic(thumb1.sxtb),
)


# The column of a pixel is the input itself for pointwise convolutions; otherwise it is
# packed as in conv2d_fully_connected.py. Micro-kernels multiply weights with 128 added,
# so 128 times the column's sum is subtracted. Constant channels are not computed.


def _emit_gemm(b: Kernel, gemm: ScalarGemm, column: tir.Buffer, at: ArithExpr) -> None:
    gemm.constants.emit_stores(b, at, 1)
    excess = gemm_kernel.sum_column(b, gemm, column, 0)
    sums = b.allocate("sums", INT32, (ROWS,))
    with b.for_("group", gemm.blocks) as group:
        w, start = gemm.block(b, group)
        x = b.pointer(column, 0, gemm.depth)
        y = b.pointer(sums, 0, ROWS, "w")
        b.evaluate(microkernel_name(gemm.depth), [w, x, start, y, gemm.depth])
        with b.for_("row", ROWS) as row:
            index = b.let("index", group * ROWS + row)
            channel = b.let("channel", gemm.order.channel(b, index))
            finish = gemm.epilogue.bind_channel(b, index)
            stored = b.load(sums, [row])
            exact = gemm_kernel.subtract_excess(gemm, stored, excess)
            total = b.let("total", exact)
            out = b.view("out", b.y, at * gemm.outputs, (gemm.outputs,), access="w")
            b.store(out, [channel], finish(total))


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    if not op.input(0).dtype == op.input(1).dtype == INT8:
        return ()
    applies = op.op == "conv2d" or fully_connected.has_int32_multiplier(op)
    return (NO_CONFIG,) if applies else ()


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    kernel = weight_offsets(op)
    offset = WEIGHT_OFFSET + weight_zero_point(op)
    flat = kernel.reshape(len(kernel), -1)
    params = layer_requantization(op)
    gemm = gemm_kernel.plan_scalar_gemm(
        b, op, flat, params, lambda computed: ROWS, UINT8, offset, in_32_bits=True
    )
    window = kernel_window(op)
    zero_point = per_tensor_quant(op.input(0)).zero_point
    with b.for_("pixel", op.output.elements // len(kernel)) as at:
        column = pack_columns(b, op, zero_point, window, at, (1, gemm.depth))
        _emit_gemm(b, gemm, column, at)


SCHEDULES = tuple(
    thumb1_schedule(
        f"thumb1.{op}.rows",
        op,
        configs=_configs,
        build=_build,
        takes_weight_zero_point=True,
    )
    for op in ("conv2d", "fully_connected")
)
