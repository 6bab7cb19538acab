"""Configurable test backend that computes with the default loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from firmwright.base.dtypes import FLOAT32
from firmwright.ir.core import Target
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.evaluate import make_op_call
from firmwright.ir.graph.nodes import Call, Function, TensorType, Value
from firmwright.ir.graph.patterns import Match, Pattern
from firmwright.ir.module import IRModule, Pass
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table
from firmwright.targets.backend import Backend, PatternEntry, match_always
from firmwright.targets.target_kind import (
    Hook,
    Hooks,
    LoweredFunction,
    PassSelection,
    Phase,
    TargetKind,
)


def default_loops(
    function: Function, module: IRModule, target: Target
) -> LoweredFunction:
    """Lower a function of one call by the default loops."""
    (call,) = function.body
    described = make_op_call(call, module)
    kernel = Kernel(function.name, described)
    op_table()[call.op].lower(described, kernel)
    return LoweredFunction(
        kernel.build(op=call.op, schedule="toy"), dict(kernel.constants)
    )


@dataclass(eq=False)
class Toy(Backend):
    """Backend with the pattern table `entries` and optional predicates."""

    entries: Mapping[str, Pattern]
    name: str = "toy"
    predicates: Mapping[str, Callable[[Match], bool]] = field(default_factory=dict)
    merge_regions: bool = False
    own_phases: Mapping[Phase, tuple[Pass, ...]] = field(default_factory=dict)
    passes: PassSelection = Backend.passes
    hook: Hook = default_loops
    pools: tuple[str, ...] = ()

    def patterns(self) -> Sequence[PatternEntry]:
        return [
            PatternEntry(name, pattern, self.predicates.get(name, match_always))
            for name, pattern in self.entries.items()
        ]

    @cached_property
    def kind(self) -> TargetKind:
        return TargetKind(
            self.name,
            "for tests",
            is_core=False,
            hooks=Hooks(relay_to_tir=self.hook),
            passes=self.passes,
            phases=self.own_phases,
        )


def chain(*calls: tuple[str, str, str]) -> IRModule:
    """Build a module of float operators `(op, inputs, output)` with inputs x and z."""
    kind = TensorType((1, 2, 2, 3), FLOAT32)
    values = {name: Value(name, kind) for name in ("x", "z")}
    body: list[Call] = []
    for op, inputs, output in calls:
        values[output] = Value(output, kind)
        attrs = {"activation": "none"} if op in ("add", "mul") else {}
        body.append(
            Call(
                op,
                tuple(values[n] for n in inputs.split()),
                (values[output],),
                attrs_from_mapping(op, attrs),
            )
        )
    params = tuple(values[name] for name in ("x", "z"))
    consumed = {
        value.name for call in body for value in call.inputs if value is not None
    }
    results = tuple(v for call in body for v in call.outputs if v.name not in consumed)
    main = Function("main", params, tuple(body), results)
    return IRModule("toy", {"main": main}, entry_name="main")
