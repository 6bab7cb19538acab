"""conv2d and fully_connected on Armv6-M: eight channels times one pixel."""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import INT8, INT32, UINT8, Array
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.ops import fully_connected
from firmwright.ops.conv2d import weight_offsets
from firmwright.ops.conv_window import kernel_window
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import per_tensor_quant, weight_zero_point
from firmwright.ops.schedule import NO_CONFIG, ScheduleConfig
from firmwright.schedules.asm_macros import string_lines
from firmwright.schedules.epilogue import layer_requantization
from firmwright.schedules.scalar import gemm_kernel
from firmwright.schedules.scalar.conv2d_fully_connected import pack_columns
from firmwright.schedules.scalar.gemm_kernel import ScalarGemm
from firmwright.schedules.schedule_factories import thumb1_schedule

_C = read_sections(__file__)

# Only eight registers can be multiplied or addressed with. Two sums are in low
# registers and six in high ones, which ADD can reach. MULS overwrites a factor, here
# the weight. Byte loads with an immediate offset are unsigned, so weights are stored
# with 128 added, and the caller subtracts 128 (plus the weights' zero point) times the
# column's sum. A step is 26 instructions for 8 products. The statement uses named
# registers and stores the sums to memory, since gcc has no registers left.

ROWS = 8
WEIGHT_OFFSET = 128
MAX_UNROLL = 4
_SUMS = ("r5", "r6", "r8", "r9", "r10", "r11", "r12", "lr")
_LOW = 2
"""Number of sums in low registers, the first ones."""
_STEP_INSTRUCTIONS = 2 + 3 * ROWS
_LOOP_INSTRUCTIONS = 4


def _begin() -> list[str]:
    lines = [f"ldr {name}, [r0, #{4 * row}]" for row, name in enumerate(_SUMS[:_LOW])]
    for row, name in enumerate(_SUMS[_LOW:], _LOW):
        lines += [f"ldr r1, [r0, #{4 * row}]", f"mov {name}, r1"]
    return lines


def _end() -> list[str]:
    lines = [f"str {name}, [r7, #{4 * row}]" for row, name in enumerate(_SUMS[:_LOW])]
    for row, name in enumerate(_SUMS[_LOW:], _LOW):
        lines += [f"mov r1, {name}", f"str r1, [r7, #{4 * row}]"]
    return lines


def _step(step: int) -> list[str]:
    lines = [f"ldrb r0, [r2, #{step}]", "sxtb r0, r0"]
    for row, name in enumerate(_SUMS):
        add = f"adds {name}, {name}, r1" if row < _LOW else f"add {name}, r1"
        lines += [f"ldrb r1, [r3, #{ROWS * step + row}]", "muls r1, r0", add]
    return lines


def _quoted(lines: list[str]) -> str:
    return "\n".join(string_lines(lines))


def _text(unroll: int) -> str:
    steps = [_quoted(_step(step)) for step in range(unroll)]
    return fill_text(
        _C["text"],
        begin=_quoted(_begin()),
        steps="\n".join(steps),
        end=_quoted(_end()),
        unroll=unroll,
        w_bytes=ROWS * unroll,
    )


def _meaning(w: Array, x: Array, start: Array, _: Array, steps: int) -> Array:
    weights = np.asarray(w, np.int64)[: ROWS * steps]
    weights = weights.reshape(steps, ROWS, *weights.shape[1:])
    columns = np.asarray(x, np.int64)[:steps, None]
    sums = np.asarray(start, np.int64)[:ROWS] + (weights * columns).sum(axis=0)
    result: Array = sums.astype(np.uint32).astype(np.int32)
    return result


def unroll_factor(steps: int) -> int:
    return max(n for n in range(1, MAX_UNROLL + 1) if steps % n == 0)


def microkernel_name(steps: int) -> str:
    return f"thumb1_8x1_{unroll_factor(steps)}"


def _executed(unroll: int, steps: int) -> int:
    each = _STEP_INSTRUCTIONS * unroll + _LOOP_INSTRUCTIONS
    return len(_begin()) + len(_end()) + steps // unroll * each


_DOC = (
    "Products of 8 rows of weights, each 128 too large, with a column of `steps` "
    "elements."
)


def _block(unroll: int) -> Intrinsic:
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
        portable=_C["portable"],
        doc=_DOC,
        requires="thumb1",
        text={"gnu": _text(unroll)},
        count=lambda args: _executed(unroll, args[-1]),
    )


INTRINSICS = tuple(map(_block, range(1, MAX_UNROLL + 1)))


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
