"""fully_connected for scalar cores: each row of the input times groups of outputs."""

from __future__ import annotations

from collections.abc import Sequence

from firmwright.base.dtypes import INT8
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.schedule import Config, Rule
from firmwright.ops.conv2d import weights_of
from firmwright.ops.fully_connected import requant_of
from firmwright.ops.kernel import Kernel
from firmwright.schedules.scalar.layers import DTYPES, make_layer
from firmwright.schedules.scalar.products import make_matrix, multiply

_LANES = 8


def _configs(op: OpCall) -> Sequence[Config]:
    return ({},) if op.input(0).dtype in DTYPES else ()


def _build(op: OpCall, config: Config, b: Kernel) -> None:
    weights = weights_of(op)
    outputs, depth = weights.shape
    layer = make_layer(b, op, weights, requant_of(op) if op.input(0).dtype == INT8 else None)
    matrix = make_matrix(b, layer, weights, _LANES)
    with (
        b.for_("n", op.output.elements // outputs) as n,
        b.window("row", b.input(0), n * depth, (1, depth)) as columns,
        b.window("out", b.y, n * outputs, (outputs,), access="w") as y,
    ):
        multiply(b, matrix, columns, lambda row, _, value: b.store(y, [row], value))


RULES = (
    Rule(
        "scalar.fully_connected.groups",
        "fully_connected",
        frozenset(),
        _configs,
        _build,
        keeps_order=True,
    ),
)
