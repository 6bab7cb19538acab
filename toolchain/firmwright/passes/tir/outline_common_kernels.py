"""Outlines functions for kernels that differ in constants, shapes and other numbers.

Runs on a planned module. The kernels of a group get the attribute `code`, the name of
the shared function, and their differences become parameters. They remain separate in
the module but are printed as the same C text (decision 0073).

The predicted slowdown of a call is at most CALL_PERCENT_MAX, and that of the program is
limited, too, except with `size`; nothing is shared with `speed`.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from firmwright.base.c_identifiers import UniqueNamer
from firmwright.base.dtypes import INT64
from firmwright.base.grouping import group_pairs
from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.settings import Minimize
from firmwright.ir.tir.cost_model import Cost
from firmwright.ir.tir.intrinsic import IntrinsicTable
from firmwright.ir.tir.traversal import callees, child_statements, local_names
from firmwright.ir.tir.verify import diagnose_prim_func
from firmwright.passes.tir.dedupe_functions import can_be_merged
from firmwright.passes.tir.externalize_constants import (
    ExtraArguments,
    constant_arguments,
    differing_constants,
    redirect_calls,
    with_const_params,
)
from firmwright.passes.tir.shape_abstraction import (
    KernelTemplate,
    Token,
    fill_holes,
    flatten_buffers,
    make_template,
    template_identity,
)

CALL_PERCENT_MAX = 10
"""Maximum slowdown of a call in percent."""
QUICK_PERCENT_MAX: Mapping[Minimize, int] = {
    Minimize.BALANCED: 2,
    Minimize.RAM: 2,
    Minimize.SIZE: 10,
}
"""Slowdown of a call in percent that is always permitted; other goals share nothing."""
PROGRAM_PERMILLE_MAX = 5
"""Maximum slowdown of a program by all calls that lose more, in thousandths."""
_NUMBERS_MAX = 24
"""Limit of the differing numbers of a group, each of which is a parameter."""
_ARGUMENT_BYTES = 6
"""Code of each additional argument of a call."""
_ARGUMENT_TIME = 3
"""Time of each additional argument of a call."""

EstimateCost: TypeAlias = Callable[[tir.PrimFunc, Mapping[str, int]], Cost]
"""Cost of a kernel for given values of its scalar parameters."""


def _role_rank(role: str) -> tuple[bool, bool, str]:
    """Rank a role as the name of a parameter: counts of loops first, then strides."""
    return not role.endswith("_count"), role != "stride", role


@dataclass(frozen=True, slots=True)
class _SharedKernel:
    """A kernel, its form `func` with flat buffers, that form's template and cost."""

    original: tir.PrimFunc
    func: tir.PrimFunc
    skeleton: KernelTemplate
    cost: Cost


@dataclass(frozen=True)
class _OutlinedGroup:
    """Kernels of one template, and what it would cost them to share one function.

    A number is identified by its values, one for each member: numbers that are equal in
    all members become one parameter.
    """

    members: Sequence[_SharedKernel]
    price: EstimateCost

    @cached_property
    def places(self) -> dict[tuple[tir.IntImm, ...], list[int]]:
        """The positions of each set of differing numbers, one value per member."""
        places: dict[tuple[tir.IntImm, ...], list[int]] = {}
        columns = zip(*(member.skeleton.values for member in self.members), strict=True)
        for position, values in enumerate(columns):
            if len(set(values)) > 1:
                places.setdefault(values, []).append(position)
        return places

    @cached_property
    def scalars(self) -> dict[tuple[tir.IntImm, ...], tir.Var]:
        """The parameter for each number, named after the most telling of its roles."""
        first = self.members[0]
        names = UniqueNamer(local_names(first.func))
        numbers = first.skeleton.numbers
        scalars: dict[tuple[tir.IntImm, ...], tir.Var] = {}
        for values, places in self.places.items():
            role = min((numbers[place].role for place in places), key=_role_rank)
            scalars[values] = tir.Var(names.unique(role), values[0].dtype)
        return scalars

    @cached_property
    def losses(self) -> list[float]:
        """The time that each member loses, in percent of its own."""
        passing = _ARGUMENT_TIME * len(self.scalars)
        losses: list[float] = []
        for member, cost in zip(self.members, self._costs, strict=True):
            lost = passing + cost.time - member.cost.time
            losses.append(100 * lost / max(member.cost.time, 1))
        return losses

    def dearest(self) -> tuple[tir.IntImm, ...]:
        """Return the values of the number that the slowest member uses most often."""
        slowest = self.members[self.losses.index(max(self.losses))]
        numbers = slowest.skeleton.numbers

        def uses(values: tuple[tir.IntImm, ...]) -> int:
            return sum(numbers[place].runs for place in self.places[values])

        # A split by this number makes it a constant again where it costs the most.
        return max(self.places, key=uses)

    def lost_time(self, calls: Mapping[str, int]) -> float:
        """Return the time that a run loses; `calls` counts those of each kernel."""
        lost = 0.0
        for member, percent in zip(self.members, self.losses, strict=True):
            own = member.cost.time * max(percent, 0.0) / 100
            lost += calls[member.func.name] * own
        return lost

    @property
    def saved_bytes(self) -> int:
        """Code bytes saved, minus those added at the call sites."""
        # Kernels with equal numbers share their code already, without parameters.
        distinct: dict[tuple[tir.IntImm, ...], int] = {}
        for member in self.members:
            distinct[member.skeleton.values] = member.cost.code_bytes
        shared = max(cost.code_bytes for cost in self._costs)
        added = _ARGUMENT_BYTES * len(self.scalars) * len(self.members)
        return sum(distinct.values()) - shared - added

    @cached_property
    def _costs(self) -> list[Cost]:
        """The cost of each member; members with equal numbers are evaluated once."""
        by_values: dict[tuple[tir.IntImm, ...], Cost] = {}
        for index, member in enumerate(self.members):
            own = member.skeleton.values
            if own not in by_values:
                arguments: dict[str, int] = {}
                for values, var in self.scalars.items():
                    arguments[var.name] = values[index].value
                by_values[own] = self.price(self._variable(member), arguments)
        return [by_values[member.skeleton.values] for member in self.members]

    def _variable(self, member: _SharedKernel) -> tir.PrimFunc:
        """Return a member's kernel with variables for the differing numbers."""
        numbers = member.skeleton.numbers
        variables: dict[int, tir.Expr] = {}
        for values, var in self.scalars.items():
            for place in self.places[values]:
                variables[numbers[place].place] = var
        return fill_holes(member.func, variables)

    def function(self, member: _SharedKernel) -> tir.PrimFunc:
        """Return the kernel of a member with parameters for all differences."""
        func = with_const_params(self._variable(member), self._constants)
        added = tuple(tir.Param(var, "scalar") for var in self.scalars.values())
        attrs = {**func.attrs, "code": self.members[0].func.name}
        return replace(func, params=func.params + added, attrs=attrs)

    def arguments(self, index: int) -> ExtraArguments:
        constants = constant_arguments(self.members[index].func, self._constants)
        numbers = [values[index] for values in self.places]
        return (*constants, *numbers)

    @cached_property
    def _constants(self) -> list[str]:
        return differing_constants([member.func for member in self.members])


def outline_common_kernels(
    module: IRModule, intrinsics: IntrinsicTable, price: EstimateCost
) -> IRModule:
    """Return `module` with shared kernel code, or itself if nothing can be shared."""
    goal = module.settings.objective.minimize
    entry = module.find_entry()
    if goal not in QUICK_PERCENT_MAX or not isinstance(entry, tir.PrimFunc):
        return module
    functions = dict(module.functions)
    calls: dict[str, tuple[str, ExtraArguments]] = {}
    groups: list[_OutlinedGroup] = []
    for kernels in _similar_kernels(module, entry, intrinsics):
        members = list(_members(module, kernels, intrinsics, price))
        groups += _profitable_groups(members, price, CALL_PERCENT_MAX)
    for sharing in _within_time(groups, module, entry, price):
        for index, member in enumerate(sharing.members):
            name = member.func.name
            functions[name] = sharing.function(member)
            calls[name] = (name, sharing.arguments(index))
    return redirect_calls(module, functions, calls)


def _within_time(
    groups: Sequence[_OutlinedGroup],
    module: IRModule,
    entry: tir.PrimFunc,
    price: EstimateCost,
) -> list[_OutlinedGroup]:
    """Return the groups that the goal permits: first those that save most for the time.

    A group that loses too much is split until its parts are quick.
    """
    quick_percent = QUICK_PERCENT_MAX[module.settings.objective.minimize]
    calls = _call_counts(entry.body)
    time = 0
    for name, count in calls.items():
        time += count * price(module.kernel(name), {}).time
    spare_time = time * PROGRAM_PERMILLE_MAX / 1000
    lost_times = {id(group): group.lost_time(calls) for group in groups}

    def rank(group: _OutlinedGroup) -> float:
        return -group.saved_bytes / max(lost_times[id(group)], 1.0)

    kept: list[_OutlinedGroup] = []
    for group in sorted(groups, key=rank):
        lost_time = lost_times[id(group)]
        if not group.places or max(group.losses) <= quick_percent:
            kept.append(group)
        elif lost_time <= spare_time:
            spare_time -= lost_time
            kept.append(group)
        else:
            kept += _split_until_profitable(group, quick_percent)
    return kept


def _call_counts(main: tir.Stmt) -> Counter[str]:
    """Count the calls of each kernel in a run, of both branches where there are two."""
    counts: Counter[str] = Counter()
    parts = [(main, 1)]
    while parts:
        stmt, times = parts.pop()
        match stmt:
            case tir.PrimFuncCall(callee=callee):
                counts[callee] += times
            case tir.For(extent=tir.IntImm(value=extent)):
                times *= extent
        parts += [(child, times) for child in child_statements(stmt)]
    return counts


def _similar_kernels(
    module: IRModule, entry: tir.PrimFunc, intrinsics: IntrinsicTable
) -> Iterator[list[tir.PrimFunc]]:
    """Yield the kernels of a target with equal templates that cannot be merged."""
    sets: dict[tuple[object, ...], list[tir.PrimFunc]] = {}
    keys: dict[Hashable, tuple[Token, ...]] = {}
    for callee in callees(entry.body):
        kernel = module.kernel(callee)
        identity = template_identity(kernel)
        if identity not in keys:
            keys[identity] = make_template(kernel, intrinsics).key
        target = kernel.attrs.get("target")
        sets.setdefault((target, *keys[identity]), []).append(kernel)
    for kernels in sets.values():
        if len(kernels) > 1 and not can_be_merged(kernels, intrinsics):
            yield kernels


def _members(
    module: IRModule,
    kernels: Sequence[tir.PrimFunc],
    intrinsics: IntrinsicTable,
    price: EstimateCost,
) -> Iterator[_SharedKernel]:
    """Yield the kernels that remain correct with one-dimensional buffers."""
    for func in kernels:
        flat = flatten_buffers(func)
        if flat is not None and not diagnose_prim_func(flat, module, intrinsics):
            template = make_template(flat, intrinsics)
            yield _SharedKernel(func, flat, template, price(flat, {}))


def _profitable_groups(
    members: Sequence[_SharedKernel], price: EstimateCost, limit: int
) -> Iterator[_OutlinedGroup]:
    sets: dict[tuple[object, ...], list[_SharedKernel]] = {}
    for member in members:
        # 64-bit numbers cannot be parameters, so they must be equal in a group.
        fixed: list[tir.IntImm] = []
        for value in member.skeleton.values:
            if value.dtype == INT64:
                fixed.append(value)
        sets.setdefault((member.skeleton.key, *fixed), []).append(member)
    for alike in sets.values():
        yield from _split_until_profitable(_OutlinedGroup(alike, price), limit)


def _split_until_profitable(
    sharing: _OutlinedGroup, limit: int
) -> Iterator[_OutlinedGroup]:
    """Yield `sharing` if profitable, else its profitable parts by costliest number."""
    if not sharing.places:
        if len({member.skeleton.shapes for member in sharing.members}) > 1:
            yield sharing
        return
    is_quick = max(sharing.losses) <= limit
    if is_quick and len(sharing.places) <= _NUMBERS_MAX and sharing.saved_bytes > 0:
        yield sharing
        return
    pairs = zip(sharing.dearest(), sharing.members, strict=True)
    for part in group_pairs(pairs).values():
        yield from _split_until_profitable(_OutlinedGroup(part, sharing.price), limit)
