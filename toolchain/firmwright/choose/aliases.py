"""Values that share memory with others: views, elided copies, next values of states.

An alias is a part of another value or alias. The next value of a state needs no copy if
all reads of the state precede its computation, and a kernel that can update the state
in place.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from firmwright.base.size_formula import SizeFormula
from firmwright.ir import tir
from firmwright.ir.bounded_axis import BoundedAxis
from firmwright.ir.graph.attributes.movement import MovementAttrs, is_subview
from firmwright.ir.graph.nodes import Call, Function, State, Value
from firmwright.ir.tir import traversal
from firmwright.ir.tir.builder import INDEX
from firmwright.ir.tir.inplace_distance import find_offset_constraints


@dataclass(frozen=True, slots=True)
class Alias:
    """The part of the value named `whole` that starts at element `offset`.

    The offset is that of the largest size of a bounded axis; a size that is smaller by
    1 has one that is smaller by `offset_step`.
    """

    whole: str
    offset: int
    offset_step: int = 0

    def offset_at(self, axis: BoundedAxis | None) -> tir.Expr:
        """Return the offset at the size of the run."""
        if axis is None or not self.offset_step:
            return tir.IntImm(self.offset, INDEX)
        formula = SizeFormula(
            factor=self.offset_step, offset=self.offset - self.offset_step * axis.most
        )
        return axis.expression(formula, INDEX)


def aliases_input(call: Call) -> bool:
    """Return whether the call's outputs are parts of its input, as in a view."""
    attrs = call.attrs
    return not (isinstance(attrs, MovementAttrs) and attrs.subviews_of == "output")


def find_aliases(calls: Iterable[Call]) -> dict[str, Alias]:
    """Return the aliases, by value name, that calls without kernels define."""
    aliases: dict[str, Alias] = {}
    for call in calls:
        wholes, parts = call.inputs, call.outputs
        if not aliases_input(call):
            wholes, parts = call.outputs, call.variables
        whole = wholes[0]
        assert whole is not None
        attrs = call.attrs
        offsets = attrs.offsets if is_subview(attrs) else (0,)
        steps = (0,) * len(offsets)
        if is_subview(attrs) and attrs.offset_steps:
            steps = attrs.offset_steps
        for part, offset, step in zip(parts, offsets, steps, strict=True):
            aliases[part.name] = Alias(whole.name, offset, step)
    return aliases


def alias_chain(placed: Mapping[str, Alias], name: str) -> list[Alias]:
    """Return the aliases from a value to its memory; none if that is its own."""
    chain = []
    while name in placed:
        chain.append(placed[name])
        name = placed[name].whole
    return chain


def declare_views(
    placed: Mapping[str, Alias],
    buffers: Mapping[str, tir.Buffer],
    read_only: Collection[str],
    axis: BoundedAxis | None = None,
) -> tuple[tir.DeclBuffer, ...]:
    """Declare the buffers of aliases, wholes first; views of `read_only` only read.

    Offsets depend on the size of `axis`, the bounded axis of the model.
    """
    chains = {name: alias_chain(placed, name) for name in placed}

    def depth(name: str) -> int:
        return len(chains[name])

    views: list[tir.DeclBuffer] = []
    for name in sorted(placed, key=depth):
        place, buffer = placed[name], buffers[name]
        access: tir.AccessMode = "r" if chains[name][-1].whole in read_only else "rw"
        offset = place.offset_at(axis)
        source = tir.AccessPtr(buffers[place.whole], offset, buffer.elements, access)
        views.append(tir.DeclBuffer(buffer, source, tir.Seq(())))
    return tuple(views)


def known_alignment(placed: Mapping[str, Alias], value: Value, most: int) -> int:
    """Return the alignment of a value's address in memory aligned to `most` bytes."""
    alignment = most
    for place in alias_chain(placed, value.name):
        elements = math.gcd(place.offset, place.offset_step)
        alignment = math.gcd(alignment, elements * value.type.dtype.size_bytes)
    return alignment


def find_state_aliases(
    entry: Function,
    views: Collection[str],
    spans: Sequence[tuple[int, int]],
    updates: Callable[[int, State], bool] = lambda index, state: False,
) -> dict[str, str]:
    """Map each value that can be computed in the memory of a state to that state.

    Each (first, end) in `spans` is a range of fused calls, which all read until the
    last and write from the first. `updates(index, state)` returns whether the kernel of
    a call can compute the next value of a state in place.
    """
    if not entry.state:
        return {}
    begins = list(range(len(entry.body)))
    ends = list(begins)
    for first, end in spans:
        # Fused calls run interleaved: each reads and writes during the whole segment.
        begins[first:end] = [first] * (end - first)
        ends[first:end] = [end - 1] * (end - first)
    last_read = _last_reads(entry, views, ends)
    maker: dict[str, int] = {}
    for begin, call in zip(begins, entry.body, strict=True):
        for value in call.outputs:
            maker[value.name] = begin
    results = {value.name for value in entry.results}
    aliases: dict[str, str] = {}
    for state in entry.state:
        name = state.next.name
        if name in results:
            continue
        read_at, made_at = last_read.get(state.value.name, -1), maker.get(name, -1)
        # calls            0    1    2    3    4
        # state is read    x         x
        # next is made                    x     after the last read: no copy is needed
        # next is made               x          with it: if the kernel works in place
        is_last_reader = read_at == made_at >= 0
        is_update = is_last_reader and updates(made_at, state)
        if read_at < made_at or is_update:
            aliases.setdefault(name, state.value.name)
    return aliases


def _last_reads(
    entry: Function, views: Collection[str], ends: Sequence[int]
) -> dict[str, int]:
    """Return the last call that reads each source of the function, also through views.

    `ends` has the last call of the fused segment that each call belongs to.
    """
    root = {value.name: value.name for value in entry.sources}
    last: dict[str, int] = {}
    for index, call in enumerate(entry.body):
        names: list[str] = []
        for operand in call.inputs:
            if operand is not None and operand.name in root:
                names.append(operand.name)
        if names and call.outputs and call.outputs[0].name in views:
            for value in call.outputs:
                root[value.name] = root[names[0]]
        else:
            for name in names:
                last[root[name]] = ends[index]
    return last


def in_place_kernel(
    kernel: tir.PrimFunc, values: Sequence[Value], state: Value, following: Value
) -> tir.PrimFunc | None:
    """Return the kernel with its output `following` in the memory of the input `state`.

    `values` are those of the kernel's parameters; `following` has no parameter in the
    result. Returns None if the kernel would overwrite elements before their last read,
    or if the types differ.
    """
    if values.count(state) != 1 or values.count(following) != 1:
        return None
    source = kernel.params[values.index(state)].value
    result = kernel.params[values.index(following)].value
    if not isinstance(source, tir.Buffer) or not isinstance(result, tir.Buffer):
        return None
    if (source.shape, source.dtype) != (result.shape, result.dtype):
        return None
    memory = {source.name: source.name, result.name: source.name}
    body = _without_self_copies(kernel.body, memory)
    if source.name in traversal.used_buffers(body):
        limits = find_offset_constraints(kernel, source.name, result.name)
        # Source and result at the same address are a difference of 0.
        if limits is None or any(limit.lo < 0 < limit.hi for limit in limits):
            return None
    params: list[tir.Param] = []
    for param in kernel.params:
        if param.value == source:
            params.append(replace(param, role="inout"))
        elif param.value != result:
            params.append(param)
    body = traversal.substitute(body, {}, {result.name: source})
    return replace(kernel, params=tuple(params), body=body)


def _without_self_copies(node: tir.Stmt, memory: Mapping[str, object]) -> tir.Stmt:
    """Remove stores of elements that were loaded from the same place, and unused views.

    Buffers with equal values in `memory` are the same elements.
    """
    match node:
        case tir.DeclBuffer(buffer, tir.AccessPtr(source, offset)):
            root = memory.get(source.name)
            if root is not None:
                place = (root, offset, buffer.shape, buffer.strides, buffer.dtype)
                memory = {**memory, buffer.name: place}
        case tir.BufferStore(buffer, indices, tir.BufferLoad(read, places)) if (
            indices == places
        ):
            if buffer.name in memory and memory[buffer.name] == memory.get(read.name):
                return traversal.EMPTY_STMT
    inner = {id(part): part for part in traversal.child_statements(node)}

    def changed(part: traversal.Node) -> traversal.Node:
        statement = inner.get(id(part))
        return part if statement is None else _without_self_copies(statement, memory)

    node = traversal.map_children(node, changed)
    if isinstance(node, tir.DeclBuffer):
        is_used = node.buffer.name in traversal.used_buffers(node.body)
        return node if is_used else node.body
    return node
