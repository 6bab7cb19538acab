"""Pass `partition`: turn groups of calls that match a backend into functions (BYOC).

The functions have the attributes `target` (a name in the module's table), `symbol` (a C
name), and `composite` if they are a single entry of the backend's pattern table. Names
do not depend on other parts of the model. The module's attribute `partitioned` lists
the backends for which this was done.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
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
from firmwright.partitioning.offload import (
    annotate_offloaded_calls,
    requested_shares,
    without_core_annotations,
)
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
_NAMED_OPS = 4
"""Number of operators in a symbol before it ends in `more`."""


def partition_module(
    module: IRModule,
    watch: PassTimer,
    names: Collection[str] | None = None,
    where: MatchCondition = match_always,
) -> IRModule:
    """Assign open calls to the backends `names`.

    By default, these are the backends for which this was not done. `where` is a
    condition on their matches; the other backends take offloaded calls only.
    """
    backends = active_backends(module)
    if names is None:
        names = {item.name for item in backends} - {*partitioned_for(module)}
    if not names and not module.settings.offload:
        return lower_custom_ops(module)
    active: list[ActiveBackend] = []
    for item in backends:
        condition = where if item.name in names else _match_never
        active.append(replace(item, where=condition))
    module = run_pre_partition(module, watch, active)
    return run_partition(module, watch, greedy_cover, active)


def _match_never(match: Match) -> bool:
    """Reject all matches: the condition of backends that take offloaded calls only."""
    return False


def partitioned_for(module: IRModule) -> tuple[str, ...]:
    """Return the targets for which the module was partitioned."""
    return module.results.partitioned or ()


def run_pre_partition(
    module: IRModule, watch: PassTimer, active: Sequence[ActiveBackend]
) -> IRModule:
    """Run the passes of backends whose result their patterns are to see."""
    after = run_phase(module, "pre_partition", watch, [item.name for item in active])
    return annotate_offloaded_calls(_keep_assigned(module, after), active)


def run_partition(
    module: IRModule,
    watch: PassTimer,
    choose: PartitionStrategy = greedy_cover,
    active: Sequence[ActiveBackend] | None = None,
) -> IRModule:
    """Move the groups that `choose` selects to functions; run the passes that follow.

    `active` are the backends that take part, by default all of the module.
    """
    active = active_backends(module) if active is None else active
    names = [item.name for item in active if item.where is not _match_never]
    before = module
    module = _partition_functions(module, active, choose)
    shared: set[str] = set()
    for shares in requested_shares(module).values():
        shared.update(share.target for share in shares)
    for name in names:
        is_used = name in shared or functions_on_target(module, name)
        if choose is greedy_cover and not is_used:
            log.warning(
                "%s: the backend %s takes none of its operators", module.name, name
            )
    after = run_phase(module, "post_partition", watch, [item.name for item in active])
    module = _keep_assigned(before, after)
    done = tuple(dict.fromkeys((*partitioned_for(module), *names)))
    module = replace(module, results=replace(module.results, partitioned=done))
    module = _with_rejections(module, before, active)
    return lower_custom_ops(without_core_annotations(module))


def _with_rejections(
    module: IRModule, before: IRModule, active: Sequence[ActiveBackend]
) -> IRModule:
    """Record the backends' reasons for calls that are still open, if there are any."""
    reasons: list[_Rejections] = []
    for item in active:
        if item.where is _match_never:
            continue
        for graph in _unassigned_graphs(before):
            by_tensor = rejection_reasons(item.backend, graph, before, item.target)
            reasons.append(_Rejections(item.name, by_tensor))
    rows: list[Rejection] = []
    for graph in module.graphs:
        for call in graph.body:
            if call.op.startswith("@"):
                continue
            tensor = call.outputs[0].name
            for rejections in reasons:
                if tensor in rejections.by_tensor:
                    reason = rejections.by_tensor[tensor]
                    rows.append(Rejection(call.op, tensor, rejections.target, reason))
    if not rows:
        return module
    return replace(module, results=replace(module.results, rejections=tuple(rows)))


@dataclass(frozen=True, slots=True)
class _Rejections:
    """A target's reasons for rejecting calls of a graph, by their first outputs."""

    target: str
    by_tensor: Mapping[str, str]


def _unassigned_graphs(module: IRModule) -> list[Function]:
    """Return the graph functions without a target."""
    graphs: list[Function] = []
    for function in module.functions.values():
        if isinstance(function, Function) and not target_of(function):
            graphs.append(function)
    return graphs


def _keep_assigned(before: IRModule, after: IRModule) -> IRModule:
    """Return `after` with the functions that had a target in `before` unchanged."""
    functions = dict(after.functions)
    for name, function in before.functions.items():
        if target_of(function):
            functions[name] = function
    return replace(after, functions=functions)


def _partition_functions(
    module: IRModule, active: Sequence[ActiveBackend], choose: PartitionStrategy
) -> IRModule:
    for function in _unassigned_graphs(module):
        groups = choose(function, module, active)
        if groups:
            module = _FunctionPartitioner(module, function, active, groups).run()
    return module


@dataclass
class _FunctionPartitioner:
    """Moves the groups of one function to functions of their own.

    A group that is one match of a pattern becomes a composite function. A region of
    several matches becomes a function that calls a composite function for each of them:

        main:           a, b, c, d, e         groups (b, c) and d of one target, merged
        main:           a, @region, e
        @region:        @composite_0, @composite_1
        @composite_0:   b, c
        @composite_1:   d
    """

    module: IRModule
    function: Function
    active: Sequence[ActiveBackend]
    groups: Sequence[CallGroup]

    def run(self) -> IRModule:
        mergers = {item.name for item in self.active if item.backend.merge_regions}
        whole = with_unmatched(self.function, self.groups)
        merged = merge_regions(self.function, whole, mergers)
        body: list[Call] = []
        for group in sort_topologically(self.function, merged):
            calls = self._calls(group)
            if not group.target:
                body += calls
            elif len(group.entries) == 1 and group.entries[0].calls == group.calls:
                entry = group.entries[0].entry
                call = self._move_to_function(group.target, calls, group.calls, entry)
                body.append(call)
            else:
                body.append(self._region(group))
        return self.module.with_function(replace(self.function, body=tuple(body)))

    def _calls(self, group: CallGroup) -> list[Call]:
        return [self.function.body[index] for index in group.calls]

    def _region(self, group: CallGroup) -> Call:
        """Move the entries to a function that calls a composite function for each."""
        units = [CallGroup(entry.calls, "", (entry,)) for entry in group.entries]
        # The calls outside the group are units too: they order the units inside.
        whole = with_unmatched(self.function, units)
        calls: list[Call] = []
        for unit in sort_topologically(self.function, whole):
            if unit.calls[0] not in group.calls:
                continue
            inner = self._calls(unit)
            if unit.entries:
                name = unit.entries[0].entry
                call = self._move_to_function(group.target, inner, unit.calls, name)
                calls.append(call)
            else:
                calls += inner
        return self._move_to_function(group.target, calls, group.calls, "")

    def _move_to_function(
        self, target: str, calls: Sequence[Call], covered: Sequence[int], entry: str
    ) -> Call:
        """Add a function with `calls` to the module and return the call of it.

        `covered` are the indices of the original calls that `calls` execute, and
        `entry` is the pattern entry that they match ("" for a region).
        """
        params, results = self._boundary(calls, covered)
        ops = [self.function.body[index].op for index in covered]
        name = self._name(target, ops)
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
        """Return the parameters and results of a function with `calls`.

        Results are the outputs that others read, and those that the user placed, which
        must remain tensors of the caller.
        """
        outputs: list[Value] = []
        for call in calls:
            outputs += call.outputs
        defined = {value.name for value in outputs}
        params: dict[str, Value] = {}
        for call in calls:
            for value in call.variables:
                if value.name not in defined:
                    params[value.name] = value
        read_outside = {value.name for value in self.function.sinks}
        inside = set(covered)
        for index, call in enumerate(self.function.body):
            if index not in inside:
                read_outside.update(value.name for value in call.variables)
        results: list[Value] = []
        for value in outputs:
            if value.name in read_outside or is_placed(value):
                results.append(value)
        return tuple(params.values()), tuple(results)

    def _name(self, target: str, ops: Sequence[str]) -> str:
        """Return a name that no function has, such as `npu_conv2d_add_0`."""
        named = list(ops[:_NAMED_OPS])
        if len(ops) > _NAMED_OPS:
            named.append("more")
        stem = to_c_identifier("_".join([target, *named]))
        count = 0
        while f"{stem}_{count}" in self.module.functions:
            count += 1
        return f"{stem}_{count}"
