"""Equal layers: their kernels share one code, which is analyzed once."""

from dataclasses import replace

import numpy as np
import pytest

from firmwright.base.dtypes import INT8
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model
from firmwright.graph_builder import GraphBuilder
from firmwright.ir import tir
from firmwright.ir.tir.kernel_code import (
    OncePerCode,
    code_of,
    constant_links,
    with_code,
)
from firmwright.ir.tir.traversal import EMPTY_STMT, with_body
from firmwright.lower import lowering
from firmwright.lower.lowering import Lowering
from firmwright.ops.registry import op_table
from firmwright.schedules.registry import INTRINSICS, SCHEDULES
from firmwright.targets.registry import parse_target, target_features


def _convolutions(layers: int) -> Model:
    """Return a chain of convolutions of two shapes, each with weights of its own."""
    rng = np.random.default_rng(0)
    g = GraphBuilder("chain")
    x = g.input("x", (1, 6, 6, 8), scale=0.05, zero_point=3)
    for index in range(layers):
        size = 1 + 2 * (index % 2)
        weights = rng.integers(-127, 128, (8, size, size, 8)).astype(np.int8)
        x = g.call(
            "conv2d",
            x,
            g.constant(weights, scale=0.002),
            None,
            scale=0.05,
            zero_point=3,
            stride=(1, 1),
            dilation=(1, 1),
            padding=(size // 2,) * 4,
            activation="relu",
        )
    return g.model(x)


def test_equal_layers_share_their_code_and_differ_in_constants() -> None:
    module = _convolutions(6).module
    module = replace(module, targets={"cpu": parse_target("cortex-m -mcpu=cortex-m4")})
    lowered = Lowering(
        module, op_table(), SCHEDULES, INTRINSICS, target_features
    ).calls()
    constants: dict[int, list[str]] = {}
    for item in lowered:
        for candidate in item.candidates:
            links = constant_links(candidate.function.body)
            own = constants.setdefault(id(code_of(candidate.function.body)), [])
            own.append(links[0].constant)
    kernels = len(lowered[0].candidates) + len(lowered[1].candidates)
    assert len(constants) == kernels
    for names in constants.values():
        assert len(set(names)) == 3


def test_layers_of_two_shapes_are_priced_twice_however_many_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts: list[int] = []
    estimate = lowering.estimate_cost
    for layers in (4, 10):
        priced: list[str] = []

        def counted(func: tir.PrimFunc, *others: object) -> object:
            priced.append(func.name)  # noqa: B023 - called in this iteration
            return estimate(func, *others)  # type: ignore[arg-type]

        monkeypatch.setattr(lowering, "estimate_cost", counted)
        compile_for(_convolutions(layers), board="mps2-an386", optimize="speed")
        counts.append(len(priced))
    assert counts[0] == counts[1] > 4


def test_a_transformation_changes_each_code_once_and_keeps_the_constants() -> None:
    shared = tir.Seq((EMPTY_STMT,))
    functions: list[tir.PrimFunc] = []
    for name in ("first", "second"):
        buffer = tir.Buffer("w", INT8, (4,), scope="const")
        body = tir.AllocateConst(buffer, f"{name}.w", shared)
        functions.append(tir.PrimFunc(name, (), body))
    seen: list[str] = []

    def empty(func: tir.PrimFunc) -> tir.PrimFunc:
        seen.append(func.name)
        return with_body(func, with_code(func.body, EMPTY_STMT))

    once = OncePerCode(empty)
    changed = [once(func) for func in functions]
    assert seen == ["first"]
    for before, after in zip(functions, changed, strict=True):
        assert after.name == before.name
        assert after.body.constant == f"{after.name}.w"
        assert code_of(after.body) is EMPTY_STMT
