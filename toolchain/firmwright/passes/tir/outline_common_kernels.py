"""Kernels that are equal but for constants, shapes and other numbers become one C function.

In: a planned module; what kernels cost, by prediction. Out: of each set of such kernels every one
has the attribute `code`, the name of the function that serves them all, and takes as parameters
what differs: its constants, and numbers of role `scalar`. Each stays a kernel of its own, called
with the values that it had, so that verifier and interpreter know every shape; printed in C they
are the same text. Buffers of such kernels have one axis: a shape is a number like others.

What it saves is bytes of code, what it costs is predicted time: of a call at most LOSS_PERCENT, any
at all under `--optimize size`, nothing under `speed`. Sets that `dedupe-functions` makes one
without numbers for shapes are left to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from firmwright.base.c_identifiers import UniqueNamer
from firmwright.base.dtypes import INT64
from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.tir.cost_model import Cost
from firmwright.ir.tir.intrinsic import IntrinsicTable
from firmwright.ir.tir.traversal import callees, local_names
from firmwright.ir.tir.verify import diagnose_prim_func
from firmwright.passes.tir.dedupe_functions import are_duplicates
from firmwright.passes.tir.externalize_constants import (
    MainConstants,
    linked_constants,
    redirect_calls,
    with_const_params,
)
from firmwright.passes.tir.shape_abstraction import (
    KernelTemplate,
    fill_holes,
    flatten_buffers,
    make_template,
)

SLOWDOWN_PERCENT_MAX: Mapping[str, int | None] = {"balanced": 2, "ram": 2, "size": None}
"""Most that a call may lose of its time, by goal; None for any. Other goals share nothing."""
_NUMBERS_MAX = 24
_ARGUMENT_BYTES, _ARGUMENT_TIME = 6, 3
"""What a call takes more for each number that it passes."""

EstimateCost: TypeAlias = Callable[[tir.PrimFunc, Mapping[str, int]], Cost]
"""What a kernel costs when its scalar parameters have those values."""


@dataclass(frozen=True, slots=True)
class _SharedKernel:
    """A kernel with buffers of one axis, and what it costs as it stands."""

    original: tir.PrimFunc
    func: tir.PrimFunc
    skeleton: KernelTemplate
    cost: Cost


@dataclass(frozen=True)
class _OutlinedGroup:
    """What a set of kernels of one skeleton becomes."""

    members: Sequence[_SharedKernel]
    price: EstimateCost

    @cached_property
    def places(self) -> dict[tuple[tir.IntImm, ...], list[int]]:
        """The numbers that differ: their values, member by member, and where those stand."""
        found: dict[tuple[tir.IntImm, ...], list[int]] = {}
        columns = zip(*(member.skeleton.values for member in self.members), strict=True)
        for place, values in enumerate(columns):
            if len(set(values)) > 1:
                found.setdefault(values, []).append(place)
        return found

    @cached_property
    def scalars(self) -> dict[tuple[tir.IntImm, ...], tir.Var]:
        """A parameter for each of them, called after what it is."""
        first = self.members[0]
        names = UniqueNamer(local_names(first.func))
        numbers = first.skeleton.numbers
        scalars = {}
        for values, places in self.places.items():
            role = min((numbers[place].role for place in places), key=_specific)
            scalars[values] = tir.Var(names.unique(role), values[0].dtype)
        return scalars

    @cached_property
    def losses(self) -> list[float]:
        """Of each member the percentage of time that it loses."""
        passing = _ARGUMENT_TIME * len(self.scalars)
        return [
            100 * (passing + cost.time - member.cost.time) / max(member.cost.time, 1)
            for member, cost in zip(self.members, self._costs, strict=True)
        ]

    def dearest(self) -> tuple[tir.IntImm, ...]:
        """The values of the number that is used most where the loss is greatest."""
        numbers = self.members[self.losses.index(max(self.losses))].skeleton.numbers
        places = self.places
        return max(places, key=lambda found: sum(numbers[at].runs for at in places[found]))

    @property
    def saved_bytes(self) -> int:
        """Code that is not there any more, less what calls take more."""
        distinct = {member.skeleton.values: member.cost.code_bytes for member in self.members}
        added = _ARGUMENT_BYTES * len(self.scalars) * len(self.members)
        return sum(distinct.values()) - max(cost.code_bytes for cost in self._costs) - added

    @cached_property
    def _costs(self) -> list[Cost]:
        """What each member costs; those with the same numbers are looked at once."""
        known: dict[tuple[tir.IntImm, ...], Cost] = {}
        for index, member in enumerate(self.members):
            if member.skeleton.values not in known:
                given = {var.name: values[index].value for values, var in self.scalars.items()}
                known[member.skeleton.values] = self.price(self._variable(member), given)
        return [known[member.skeleton.values] for member in self.members]

    def _variable(self, member: _SharedKernel) -> tir.PrimFunc:
        """The kernel with variables for the numbers."""
        numbers = member.skeleton.numbers
        new: dict[int, tir.Expr] = {
            numbers[place].place: var
            for values, var in self.scalars.items()
            for place in self.places[values]
        }
        return fill_holes(member.func, new)

    def function(self, member: _SharedKernel) -> tir.PrimFunc:
        """The kernel of `member` with what differs as parameters."""
        func = with_const_params(self._variable(member), self._constants)
        added = tuple(tir.Param(var, "scalar") for var in self.scalars.values())
        attrs = {**func.attrs, "code": self.members[0].func.name}
        return replace(func, params=func.params + added, attrs=attrs)

    def arguments(self, index: int) -> tuple[tuple[str, tir.Buffer] | tir.IntImm, ...]:
        """What the main passes to member `index` beyond the old arguments."""
        moved = {
            n.buffer.name: (n.constant, n.buffer)
            for n in linked_constants(self.members[index].func)
        }
        numbers = (values[index] for values in self.places)
        return (*(moved[name] for name in self._constants), *numbers)

    @cached_property
    def _constants(self) -> list[str]:
        """Names of the linked buffers whose constant differs between members."""
        lists = [linked_constants(member.func) for member in self.members]
        rows = zip(*lists, strict=True)
        return [row[0].buffer.name for row in rows if len({n.constant for n in row}) > 1]


def _specific(role: str) -> tuple[bool, bool, str]:
    """Counts of loops first, then strides: what tells a reader most."""
    return not role.endswith("_count"), role != "stride", role


def outline_common_kernels(
    module: IRModule,
    intrinsics: IntrinsicTable,
    price: Callable[[IRModule, tir.PrimFunc, Mapping[str, int]], Cost],
) -> IRModule:
    """`module` with kernels of other shapes sharing code; `module` itself where none do."""
    goal = str(module.attrs.get("optimize", "balanced"))
    entry = module.functions.get(str(module.attrs.get("entry", "main")))
    if goal not in SLOWDOWN_PERCENT_MAX or not isinstance(entry, tir.PrimFunc):
        return module
    functions = dict(module.functions)
    calls: dict[str, tuple[str, tuple[tuple[str, tir.Buffer] | tir.IntImm, ...]]] = {}

    def priced(func: tir.PrimFunc, arguments: Mapping[str, int]) -> Cost:
        return price(module, func, arguments)

    for kernels in _similar_kernels(module, entry, intrinsics):
        members = list(_members(module, kernels, intrinsics, priced))
        for sharing in _profitable_groups(members, priced, SLOWDOWN_PERCENT_MAX[goal]):
            for index, member in enumerate(sharing.members):
                name = member.func.name
                functions[name] = sharing.function(member)
                calls[name] = (name, sharing.arguments(index))
    if not calls:
        return module
    functions[entry.name] = redirect_calls(entry, MainConstants(entry), calls)
    return replace(module, functions=functions)


def _similar_kernels(
    module: IRModule, entry: tir.PrimFunc, intrinsics: IntrinsicTable
) -> Iterator[list[tir.PrimFunc]]:
    """Sets of kernels that may have a skeleton in common, two or more, in the order of calls."""
    sets: dict[tuple[object, ...], list[tir.PrimFunc]] = {}
    for name in callees(entry.body):
        func = module.functions[name]
        if isinstance(func, tir.PrimFunc):
            sets.setdefault(make_template(func, intrinsics).key, []).append(func)
    for kernels in sets.values():
        if len(kernels) > 1 and not are_duplicates(kernels, intrinsics):
            yield kernels


def _members(
    module: IRModule,
    kernels: Sequence[tir.PrimFunc],
    intrinsics: IntrinsicTable,
    price: EstimateCost,
) -> Iterator[_SharedKernel]:
    """Those whose flat form is sound: the verifier has to find its accesses in bounds."""
    for func in kernels:
        flat = flatten_buffers(func)
        if flat is None or diagnose_prim_func(flat, module, intrinsics):
            continue
        yield _SharedKernel(func, flat, make_template(flat, intrinsics), price(flat, {}))


def _profitable_groups(
    members: Sequence[_SharedKernel], price: EstimateCost, limit: int | None
) -> Iterator[_OutlinedGroup]:
    """Sets of `members` that save bytes within the limit."""
    sets: dict[tuple[object, ...], list[_SharedKernel]] = {}
    for member in members:
        sets.setdefault(_fixed(member.skeleton), []).append(member)
    for alike in sets.values():
        yield from _split_until_profitable(_OutlinedGroup(alike, price), limit)


def _fixed(found: KernelTemplate) -> tuple[object, ...]:
    """What no parameter can stand for: 64-bit numbers, which nobody passes."""
    return (found.key, *(value for value in found.values if value.dtype == INT64))


def _split_until_profitable(sharing: _OutlinedGroup, limit: int | None) -> Iterator[_OutlinedGroup]:
    """`sharing` if it pays, else what pays of it when its dearest number is no argument."""
    if not sharing.places:
        return
    is_quick = limit is None or max(sharing.losses) <= limit
    if is_quick and len(sharing.places) <= _NUMBERS_MAX and sharing.saved_bytes > 0:
        yield sharing
        return
    parts: dict[tir.IntImm, list[_SharedKernel]] = {}
    for member, value in zip(sharing.members, sharing.dearest(), strict=True):
        parts.setdefault(value, []).append(member)
    for part in parts.values():
        yield from _split_until_profitable(_OutlinedGroup(part, sharing.price), limit)
