"""Lowering: every call of the graph becomes a short list of alternatives.

In: a module whose entry is a graph Function; the operator table, the schedule rules and the
features of its target. Out: the calls in order, each with its alternatives (a view has none), best
predicted first. Nothing is chosen here and the module is not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from firmwright.base.errors import InternalError, UnsupportedError, UnsupportedItem
from firmwright.ir.core import Target
from firmwright.ir.graph.evaluate import describe
from firmwright.ir.graph.nodes import Call, Function, TensorType
from firmwright.ir.graph.opdef import NotSupportedError, OpCall, OpDef, OpTable
from firmwright.ir.module import IRModule
from firmwright.ir.tir.cost import instructions
from firmwright.ir.tir.intrinsic import IntrinsicTable
from firmwright.ir.tir.nodes import Allocate
from firmwright.ir.tir.schedule import Alternative, Config, Rule
from firmwright.ir.tir.walk import walk
from firmwright.ops.kernel import Kernel


@dataclass(frozen=True, slots=True)
class LoweredCall:
    """A call with its alternatives; empty for a view and for a call of a PrimFunc."""

    call: Call
    alternatives: tuple[Alternative, ...]


def lower_module(
    module: IRModule,
    ops: OpTable,
    rules: Sequence[Rule],
    intrinsics: IntrinsicTable,
    features: Callable[[Target], frozenset[str]],
) -> tuple[LoweredCall, ...]:
    """The alternatives of every call of the entry function.

    UnsupportedError names every call that no lowering takes.
    """
    entry = module.entry
    if not isinstance(entry, Function):
        raise InternalError("lowering wants a graph function as entry")
    work = _Lowering(module, ops, rules, intrinsics, features)
    results = {value.name for value in entry.results}
    lowered: list[LoweredCall] = []
    refused: list[UnsupportedItem] = []
    for index, call in enumerate(entry.body):
        try:
            lowered.append(work.call(index, call, results))
        except NotSupportedError as reason:
            refused.append(UnsupportedItem(call.op, str(call.span), str(reason)))
    if refused:
        raise UnsupportedError(refused, where=module.name)
    return tuple(lowered)


@dataclass(frozen=True, slots=True)
class _Lowering:
    module: IRModule
    ops: OpTable
    rules: Sequence[Rule]
    intrinsics: IntrinsicTable
    features: Callable[[Target], frozenset[str]]

    def call(self, index: int, call: Call, results: set[str]) -> LoweredCall:
        if call.op.startswith("@"):
            return LoweredCall(call, ())
        opdef = self.ops[call.op]
        # A view that is a result of the model needs memory of its own, so it is copied.
        source = call.inputs[0]
        is_free = call.outputs[0].name not in results and source is not None
        if opdef.view and is_free and source is not None and source.constant is None:
            return LoweredCall(call, ())
        described = describe(call, self.module)
        offered = [
            self._scheduled(index, call, described, rule, config)
            for rule in self._fitting(call)
            for config in rule.configs(described)
        ]
        offered.append(self._default(index, call, described, opdef))
        return LoweredCall(call, tuple(sorted(offered, key=lambda item: item.instructions)))

    def _fitting(self, call: Call) -> list[Rule]:
        target = self._target(call)
        available = self.features(target) if target else frozenset()
        goals = ("", str(self.module.attrs.get("optimize", "balanced")))
        return [
            rule
            for rule in self.rules
            if rule.op == call.op and rule.requires <= available and rule.goal in goals
        ]

    def _target(self, call: Call) -> Target | None:
        if call.target:
            return self.module.targets[call.target]
        return next(iter(self.module.targets.values()), None)

    def _default(self, index: int, call: Call, described: OpCall, opdef: OpDef) -> Alternative:
        kernel = Kernel(f"{call.op}_{index}", described, call.span)
        opdef.lower(described, kernel)
        return self._finish(kernel, call, opdef, Rule("default", call.op, frozenset(), _none, _no))

    def _scheduled(
        self, index: int, call: Call, described: OpCall, rule: Rule, config: Config
    ) -> Alternative:
        kernel = Kernel(f"{call.op}_{index}", described, call.span)
        rule.build(described, config, kernel, None)
        return self._finish(kernel, call, self.ops[call.op], rule, config)

    def _finish(
        self, kernel: Kernel, call: Call, opdef: OpDef, rule: Rule, config: Config | None = None
    ) -> Alternative:
        settings = dict(config or {})
        words = " ".join([rule.name, *(f"{key}={value}" for key, value in settings.items())])
        func = kernel.build(
            op=call.op,
            schedule=words,
            comment=describe_shapes(call),
            macs=opdef.macs(kernel.call),
            target=call.target or next(iter(self.module.targets), ""),
            **({"keeps_order": True} if rule.keeps_order else {}),
        )
        scratch = sum(
            node.buffer.size_bytes
            for node in walk(func.body)
            if isinstance(node, Allocate) and node.buffer.scope == "global"
        )
        return Alternative(
            rule.name,
            settings,
            func,
            dict(kernel.constants),
            rule.direction,
            rule.granularity,
            scratch,
            sum(constant.size_bytes for constant in kernel.constants.values()),
            instructions(func, self.intrinsics),
        )


def describe_shapes(call: Call) -> str:
    """What a reader of the C wants to know first: `conv2d 25x5x64 -> 25x5x64, relu`."""
    ins = [_shape(v.type) for v in call.inputs if v is not None and v.constant is None]
    outs = [_shape(value.type) for value in call.outputs]
    activation = call.attrs.get("activation", "none")
    tail = "" if activation == "none" else f", {activation}"
    return f"{call.op} {', '.join(ins)} -> {', '.join(outs)}{tail}"


def _shape(kind: TensorType) -> str:
    shape = kind.shape[1:] if len(kind.shape) > 1 and kind.shape[0] == 1 else kind.shape
    return "x".join(map(str, shape)) or "scalar"


def _none(call: OpCall) -> Sequence[Config]:
    return ()


def _no(*_: object) -> None:
    raise NotSupportedError("the default lowering is not built by a rule")
