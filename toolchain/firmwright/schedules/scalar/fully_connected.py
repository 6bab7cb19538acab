"""fully_connected on cores without SIMD instructions: an input row times groups of outputs."""

from collections.abc import Sequence
from functools import partial
from itertools import product

from firmwright.base.dtypes import INT8
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.schedule import Config, Schedule
from firmwright.ops.conv2d import weights_of
from firmwright.ops.fully_connected import has_int32_multiplier, requantization_of
from firmwright.ops.kernel import Kernel
from firmwright.schedules.scalar.gemm_kernel import plan_scalar_gemm
from firmwright.schedules.scalar.microkernels import MicrokernelFamily
from firmwright.schedules.scalar.register_blocked_matmul import (
    DEFAULT_UNROLL,
    SUPPORTED_DTYPES,
    multiply_columns,
    pack_matrix,
    plan_scalar_layer,
)
from firmwright.schedules.scalar.rv32_microkernels import RV32M_FAMILY
from firmwright.schedules.scalar.thumb2_microkernels import MLA_FAMILY

_LANES = 8


def _configs(op: OpCall) -> Sequence[Config]:
    return ({},) if _serves(op) else ()


def _serves(op: OpCall) -> bool:
    dtype = op.input(0).dtype
    return dtype in SUPPORTED_DTYPES and (dtype != INT8 or has_int32_multiplier(op))


def _space(op: OpCall) -> Sequence[Config]:
    if not _serves(op):
        return ()
    pairs = product((2, 4, 6, 8, 10, 12), (1, 2, 4, 8))
    return [{"lanes": n, "unroll": k} for n, k in pairs if (n, k) != (_LANES, DEFAULT_UNROLL)]


def _build(op: OpCall, config: Config, b: Kernel) -> None:
    weights = weights_of(op)
    outputs, depth = weights.shape
    layer = plan_scalar_layer(
        b, op, weights, requantization_of(op) if op.input(0).dtype == INT8 else None
    )
    lanes, unroll = int(config.get("lanes", _LANES)), int(config.get("unroll", DEFAULT_UNROLL))
    matrix = pack_matrix(b, layer, weights, lanes, unroll)
    with (
        b.for_("n", op.output.elements // outputs) as n,
        b.view("row", b.input(0), n * depth, (1, depth)) as columns,
        b.view("out", b.y, n * outputs, (outputs,), access="w") as y,
    ):
        multiply_columns(b, matrix, columns, lambda row, _, value: b.store(y, [row], value))


def _block_configs(op: OpCall) -> Sequence[Config]:
    return ({},) if op.input(0).dtype == op.input(1).dtype == INT8 and _serves(op) else ()


def _build_blocks(op: OpCall, config: Config, b: Kernel, family: MicrokernelFamily) -> None:
    weights = weights_of(op)
    outputs, depth = weights.shape
    product = plan_scalar_gemm(b, family, op, weights, requantization_of(op), 1)
    with (
        b.for_("n", op.output.elements // outputs) as n,
        b.view("row", b.input(0), n * depth, (1, depth)) as columns,
    ):
        product.emit(b, columns, n)


SCHEDULES = (
    Schedule(
        "scalar.fully_connected.groups",
        "fully_connected",
        frozenset(),
        _configs,
        _build,
        disable_scheduling=True,
        space=_space,
    ),
    *(
        Schedule(
            f"{family.name}.fully_connected.blocks",
            "fully_connected",
            frozenset({family.name}),
            _block_configs,
            partial(_build_blocks, family=family),
            disable_scheduling=True,
        )
        for family in (MLA_FAMILY, RV32M_FAMILY)
    ),
)
