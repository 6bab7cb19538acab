"""Pass `partition`: turn groups of calls that match a backend into functions (BYOC).

The functions have the attributes `target` (a name in the module's table), `symbol` (a C name), and
`composite` if they are a single entry of the backend's pattern table. Names do not depend on other
parts of the model. The module's attribute `partitioned` lists the backends for which this was done.
"""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from firmwright.base.c_identifiers import to_c_identifier
from firmwright.ir.core import Attr
from firmwright.ir.graph.attributes.base import NO_ATTRS
from firmwright.ir.graph.devices import is_placed
from firmwright.ir.graph.nodes import Call, Function, Value
from firmwright.ir.graph.patterns import Match
from firmwright.ir.module import IRModule
from firmwright.ir.pass_results import Rejection
from firmwright.partitioning.custom_ops import lower_custom_ops
from firmwright.partitioning.offload import annotate_offloaded_calls, without_core_annotations
from firmwright.partitioning.pattern_matching import (
    ActiveBackend,
    MatchCondition,
    PartitionStrategy,
    active_backends,
    greedy_cover,
)
from firmwright.partitioning.per_target_passes import PassTimer, run_phase
from firmwright.partitioning.regions import (
    CallGroup,
    merge_regions,
    sort_topologically,
    with_unmatched,
)
from firmwright.partitioning.target_resolution import functions_on_target, target_of
from firmwright.targets.backend import match_always
from firmwright.targets.backend_calls import rejection_reasons

log = logging.getLogger(__name__)
"""Module attribute: (operator, tensor, target, reason) of calls that backends leave to the core."""
_NAMED_OPS = 4
"""Number of operators in a symbol before it ends in `more`."""


def partition_module(
    module: IRModule,
    watch: PassTimer,
    names: Collection[str] | None = None,
    where: MatchCondition = match_always,
) -> IRModule:
    """Assign open calls to the backends `names`, by default those for which this was not done.

    `where` is a condition on their matches; the other backends take offloaded calls only.
    """
    backends = active_backends(module)
    if names is None:
        names = {item.name for item in backends} - {*partitioned_for(module)}
    if not names and not module.settings.offload:
        return lower_custom_ops(module)
    active = [
        replace(item, where=where if item.name in names else _match_never) for item in backends
    ]
    return run_partition(run_pre_partition(module, watch, active), watch, greedy_cover, active)


def _match_never(match: Match) -> bool:
    return False


def partitioned_for(module: IRModule) -> tuple[str, ...]:
    return module.results.partitioned or ()


def run_pre_partition(
    module: IRModule, watch: PassTimer, active: Sequence[ActiveBackend]
) -> IRModule:
    """Run the passes of backends that precede partitioning, so that patterns see their result."""
    after = run_phase(module, "pre_partition", watch, [item.name for item in active])
    return annotate_offloaded_calls(_keep_assigned(module, after), active)


def run_partition(
    module: IRModule,
    watch: PassTimer,
    choose: PartitionStrategy = greedy_cover,
    active: Sequence[ActiveBackend] | None = None,
) -> IRModule:
    active = active_backends(module) if active is None else active
    names = [item.name for item in active if item.where is not _match_never]
    before, module = module, _partition_functions(module, active, choose)
    for name in names:
        if choose is greedy_cover and not functions_on_target(module, name):
            log.warning("%s: the backend %s takes none of its operators", module.name, name)
    after = run_phase(module, "post_partition", watch, [item.name for item in active])
    module = _keep_assigned(before, after)
    done = tuple(dict.fromkeys((*partitioned_for(module), *names)))
    module = replace(module, results=replace(module.results, partitioned=done))
    module = _with_rejections(module, before, active)
    return lower_custom_ops(without_core_annotations(module))


def _with_rejections(
    module: IRModule, before: IRModule, active: Sequence[ActiveBackend]
) -> IRModule:
    """Record the reasons of backends for the calls that are still open, unless they have none."""
    graphs = [f for f in before.functions.values() if isinstance(f, Function) and not target_of(f)]
    reasons = [
        (item.name, rejection_reasons(item.backend, graph, before, item.target))
        for item in active
        if item.where is not _match_never
        for graph in graphs
    ]
    rows = tuple(
        Rejection(call.op, call.outputs[0].name, target, why[call.outputs[0].name])
        for graph in module.graphs
        for call in graph.body
        for target, why in reasons
        if call.outputs[0].name in why and not call.op.startswith("@")
    )
    return replace(module, results=replace(module.results, rejections=rows)) if rows else module


def _keep_assigned(before: IRModule, after: IRModule) -> IRModule:
    """Return `after` with the functions that had a target in `before` unchanged."""
    assigned = {name: func for name, func in before.functions.items() if target_of(func)}
    return replace(after, functions={**after.functions, **assigned})


def _partition_functions(
    module: IRModule, active: Sequence[ActiveBackend], choose: PartitionStrategy
) -> IRModule:
    for function in module.functions.values():
        if isinstance(function, Function) and not target_of(function):
            groups = choose(function, module, active)
            if groups:
                module = _FunctionPartitioner(module, function, active, groups).run()
    return module


@dataclass
class _FunctionPartitioner:
    module: IRModule
    function: Function
    active: Sequence[ActiveBackend]
    groups: Sequence[CallGroup]

    def run(self) -> IRModule:
        mergers = {item.name for item in self.active if item.backend.merge_regions}
        merged = merge_regions(self.function, with_unmatched(self.function, self.groups), mergers)
        body: list[Call] = []
        for group in sort_topologically(self.function, merged):
            calls = self._calls(group)
            if not group.target:
                body += calls
            elif len(group.entries) == 1 and group.entries[0][1] == group.calls:
                body.append(self._cut(group.target, calls, group.calls, group.entries[0][0]))
            else:
                body.append(self._region(group))
        return self.module.with_function(replace(self.function, body=tuple(body)))

    def _calls(self, group: CallGroup) -> list[Call]:
        return [self.function.body[index] for index in group.calls]

    def _region(self, group: CallGroup) -> Call:
        """Move the entries to one function, which calls a composite function for each of them."""
        inside = {index: entry for entry in group.entries for index in entry[1]}
        units = [CallGroup(calls, "", ((name, calls),)) for name, calls in group.entries]
        units += [CallGroup((index,)) for index in group.calls if index not in inside]
        others = set(range(len(self.function.body))) - set(group.calls)
        units += [CallGroup((index,)) for index in sorted(others)]
        calls: list[Call] = []
        for unit in sort_topologically(self.function, units):
            if unit.calls[0] not in group.calls:
                continue
            if unit.entries:
                name = unit.entries[0][0]
                calls.append(self._cut(group.target, self._calls(unit), unit.calls, name))
            else:
                calls += self._calls(unit)
        return self._cut(group.target, calls, group.calls, "")

    def _cut(self, target: str, calls: Sequence[Call], covered: Sequence[int], entry: str) -> Call:
        params, results = self._boundary(calls, covered)
        name = self._name(target, [self.function.body[index].op for index in covered])
        symbol = to_c_identifier(f"{self.module.name}_{name}")
        attrs: dict[str, Attr] = {"target": target, "symbol": symbol}
        if entry:
            attrs["composite"] = entry
        body = tuple(replace(call, target="") for call in calls)
        region = Function(name, params, body, results, attrs)
        self.module = self.module.with_function(region)
        return Call(f"@{name}", params, results, NO_ATTRS, calls[-1].span, target)

    def _boundary(
        self, calls: Sequence[Call], covered: Sequence[int]
    ) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        defined = {value.name for call in calls for value in call.outputs}
        params = {v.name: v for call in calls for v in call.variables if v.name not in defined}
        inside = set(covered)
        others = [call for i, call in enumerate(self.function.body) if i not in inside]
        outside = {value.name for value in self.function.sinks}
        outside |= {value.name for call in others for value in call.variables}
        results = [value for call in calls for value in call.outputs]
        outside |= {value.name for value in results if is_placed(value)}  # remains a tensor
        return tuple(params.values()), tuple(v for v in results if v.name in outside)

    def _name(self, target: str, ops: Sequence[str]) -> str:
        named = [*ops[:_NAMED_OPS], *(["more"] if len(ops) > _NAMED_OPS else [])]
        stem = to_c_identifier("_".join([target, *named]))
        count = 0
        while f"{stem}_{count}" in self.module.functions:
            count += 1
        return f"{stem}_{count}"
