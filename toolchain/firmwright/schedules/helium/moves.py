"""Data movement operators by vectors of bytes."""

from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ir.tir.schedule import Config
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.schedules.helium.im2col import MAX_UNROLLED_VECTORS, VECTOR_BYTES, copy_bytes
from firmwright.schedules.schedule_factories import helium_schedule

_OPS = "batch_to_space_nd concatenation depth_to_space mirror_pad pad reshape resize_nearest"
_OPS += " space_to_batch_nd space_to_depth split strided_slice tile transpose"
_BLOCK = MAX_UNROLLED_VECTORS * VECTOR_BYTES
_TIME_MAX = 0.9


def _copy(
    b: Kernel, to: tir.Buffer, at: ArithExpr, source: tir.Buffer, start: ArithExpr, count: int
) -> None:
    blocks = count // _BLOCK if count > 2 * _BLOCK else 0
    if blocks:
        with b.for_("block", blocks) as i:
            copy_bytes(b, to, at + i * _BLOCK, source, start + i * _BLOCK, _BLOCK)
    done = blocks * _BLOCK
    copy_bytes(b, to, at + done, source, start + done, count - done)


def _build(op: OpCall, config: Config, b: Kernel) -> None:
    b.copy_bytes = _copy
    op_table()[op.op].lower(op, b)


SCHEDULES = tuple(
    helium_schedule(f"helium.{op}.vectors", op, configs=lambda op: ({},), build=_build,
                    time_max=_TIME_MAX)
    for op in _OPS.split()
)  # fmt: skip
