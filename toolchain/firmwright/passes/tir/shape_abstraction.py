"""Kernel templates: abstracted numbers make kernels of different shapes equal.

Extents, strides, limits, offsets and shifts are abstracted if they can become
variables. Other numbers, names, types and alignments are part of the template key;
sizes of buffers and pointers are not.
"""

import itertools
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from firmwright.base.dtypes import INT8, INT16, INT32, INT64, UINT32
from firmwright.ir import tir
from firmwright.ir.tir.flat_index import flat_index
from firmwright.ir.tir.intrinsic import IntrinsicTable
from firmwright.ir.tir.kernel_code import code_identity
from firmwright.ir.tir.traversal import Node, children, rewrite_func

_PASSED = frozenset({INT8, INT16, INT32, INT64, UINT32})
_SCALAR = frozenset({"add", "sub", "mul", "min", "max"})
_UNCOMPARED = ("comment", "inplace_distances", "macs")
"""Kernel attributes that do not affect its code."""
_ROLES = {
    "mul": "stride",
    "add": "offset",
    "sub": "offset",
    "shl": "shift",
    "shr": "shift",
}

Token = str | int


@dataclass(frozen=True, slots=True)
class Hole:
    """An abstracted integer: its position among the kernel's literals, and its role.

    `runs` is the number of its uses per call if all conditions hold; `stored` marks
    operands of stored values, which are not related to a shape.
    """

    place: int
    value: tir.IntImm
    role: str
    runs: int
    stored: bool


@dataclass(frozen=True, slots=True)
class KernelTemplate:
    """The common structure of kernels, and the numbers and shapes of one of them."""

    key: tuple[Token, ...]
    numbers: tuple[Hole, ...]
    shapes: tuple[int, ...]

    @property
    def values(self) -> tuple[tir.IntImm, ...]:
        return tuple(number.value for number in self.numbers)

    @property
    def merging_key(self) -> tuple[object, ...]:
        """A key that is equal for kernels that differ only in constants and scalars."""
        fixed: list[int] = []
        for number in self.numbers:
            if not number.stored:
                fixed.append(number.value.value)
        return self.key, self.shapes, tuple(fixed)


def template_identity(func: tir.PrimFunc) -> tuple[Hashable, ...]:
    """Return a key that is equal only for kernels with equal templates.

    Codes are compared by identity; see `code_identity`.
    """
    return *code_identity(func), *_compared_attrs(func)


def _compared_attrs(func: tir.PrimFunc) -> list[tuple[str, str]]:
    attrs: list[tuple[str, str]] = []
    for name, value in sorted(func.attrs.items()):
        if name not in _UNCOMPARED:
            attrs.append((name, str(value)))
    return attrs


def make_template(func: tir.PrimFunc, intrinsics: IntrinsicTable) -> KernelTemplate:
    """Return the template of `func`; `intrinsics` decides which operands may vary."""
    reader = _TemplateBuilder(intrinsics)
    for name, value in _compared_attrs(func):
        reader.key += (name, value)
    for param in func.params:
        reader.param(param)
    reader.read(func.body)
    return reader.template()


class _Visit(NamedTuple):
    """A node to read, and what is known of its place: see `Hole`."""

    node: Node
    role: str
    runs: int
    stored: bool


class _TemplateBuilder:
    """Reads a kernel in the order of the text.

    `key` receives everything that must be equal, `numbers` the holes, and `shapes` the
    shapes and strides of buffers. `literals` counts all integers.
    """

    def __init__(self, intrinsics: IntrinsicTable) -> None:
        self.intrinsics = intrinsics
        self.key: list[Token] = []
        self.numbers: list[Hole] = []
        self.shapes: list[int] = []
        self.literals = 0

    def template(self) -> KernelTemplate:
        return KernelTemplate(tuple(self.key), tuple(self.numbers), tuple(self.shapes))

    def read(self, body: Node) -> None:
        """Collect the nodes of `body`; numbers with an empty role stay literals."""
        stack = [_Visit(body, role="number", runs=1, stored=False)]
        while stack:
            visit = stack.pop()
            node = visit.node
            if isinstance(node, tir.IntImm):
                place = self.literals
                self._number(Hole(place, node, visit.role, visit.runs, visit.stored))
            elif isinstance(node, tir.Var):
                self.key += ("Var", node.name, node.dtype.short)
            else:
                self.key.append(type(node).__name__)
                self._own(node)
                stack += reversed(self._visits_below(node, visit))

    def _visits_below(self, node: Node, visit: _Visit) -> list[_Visit]:
        """Return the visits of the children of `node`, in order."""
        runs = visit.runs
        stored = visit.stored and _is_value(node)
        nodes = children(node)
        roles = self._roles(node, visit.role, len(nodes))
        visits: list[_Visit] = []
        for part, role in zip(nodes, roles, strict=True):
            visits.append(_Visit(part, role, runs, stored))
        if isinstance(node, tir.BufferStore):
            visits[-1] = _Visit(node.value, "number", runs, node.value.dtype.is_int)
        elif isinstance(node, tir.For) and isinstance(node.extent, tir.IntImm):
            # Numbers in the body run once for each iteration: a number of an inner loop
            # is expensive as a variable, one of the outermost hardly costs time.
            runs *= node.extent.value
            visits[-1] = _Visit(node.body, "number", runs, stored=False)
        return visits

    def _number(self, number: Hole) -> None:
        dtype = number.value.dtype
        if number.role and dtype in _PASSED:
            self.numbers.append(number)
            self.key.append(f"#{dtype.short}")
        else:
            self.key += (number.value.value, dtype.short)
        self.literals += 1

    def _roles(self, node: Node, role: str, count: int) -> list[str]:
        """Return the roles of the `count` children of a node that has a role itself."""
        match node:
            case tir.BufferLoad(buffer, indices):
                return [_index_role(buffer)] * len(indices)
            case tir.BufferStore(buffer, indices):
                return [_index_role(buffer)] * len(indices) + ["number"]
            case tir.For(var, kind="serial"):
                return [f"{var.name}_start", f"{var.name}_count", "number"]
            case tir.For():
                return ["", "", "number"]
            case tir.IntrinsicCall(name, args):
                intrinsic = self.intrinsics.get(name)
                if intrinsic is None:
                    return [""] * len(args)
                roles: list[str] = []
                for operand in intrinsic.operands:
                    roles.append("" if operand.kind == "imm" else "number")
                return roles
            case tir.Binary(op):
                # The role becomes the name of a parameter in C, such as `stride` for a
                # factor.
                below = "limit" if op in tir.COMPARISONS else _ROLES.get(op, "number")
                return [below if role else ""] * 2
        return [role] * count

    def _own(self, node: Node) -> None:
        """Add what a node has besides its children to the key."""
        match node:
            case tir.FloatImm(value, dtype):
                self.key += (repr(value), dtype.short)  # 0.0 and -0.0 differ
            case tir.Binary(op):
                self.key.append(op)
            case tir.Cast(dtype):
                self.key.append(dtype.short)
            case tir.BufferLoad(buffer, indices) | tir.BufferStore(buffer, indices):
                self.key += (buffer.name, len(indices))
            case tir.AccessPtr(buffer, access=access):
                self.key += (buffer.name, access)
            case tir.IntrinsicCall(name, args):
                self.key += (name, len(args))
            case tir.For(var, kind=kind):
                self._var(var)
                self.key.append(kind)
            case tir.Let(var):
                self._var(var)
            case tir.If(orelse=orelse):
                self.key.append(orelse is not None)
            case tir.Seq(stmts):
                self.key.append(len(stmts))
            case (
                tir.Allocate(buffer)
                | tir.AllocateConst(buffer)
                | tir.DeclBuffer(buffer)
            ):
                self._buffer(buffer)

    def param(self, param: tir.Param) -> None:
        self.key.append(param.role)
        if isinstance(param.value, tir.Buffer):
            self._buffer(param.value)
        else:
            self._var(param.value)

    def _var(self, var: tir.Var) -> None:
        self.key += (var.name, var.dtype.short)

    def _buffer(self, buffer: tir.Buffer) -> None:
        self.key += (buffer.name, buffer.dtype.short, buffer.scope, buffer.alignment)
        if buffer.scope == "reg":
            self.key += buffer.shape
        self.shapes += (*buffer.shape, *(buffer.strides or ()))


def _index_role(buffer: tir.Buffer) -> str:
    """Return the role of numbers in an index: those of registers stay literals."""
    return "" if buffer.scope == "reg" else "number"


def _is_value(node: Node) -> bool:
    """Return whether the children of `node`, which is stored, are stored too."""
    if isinstance(node, tir.Binary):
        return node.op in _SCALAR
    return isinstance(node, tir.Cast | tir.Select | tir.IntrinsicCall)


def fill_holes(func: tir.PrimFunc, numbers: Mapping[int, tir.Expr]) -> tir.PrimFunc:
    """Return the kernel with expressions in place of the literals at `Hole.place`."""
    # A rewrite visits the literals in the order in which the builder has counted them.
    places = itertools.count()

    def rule(node: Node) -> Node | None:
        return numbers.get(next(places)) if isinstance(node, tir.IntImm) else None

    return rewrite_func(func, rule)


def flatten_buffers(func: tir.PrimFunc) -> tir.PrimFunc | None:
    """Return `func` with one-dimensional buffers, or None for mixed index types."""
    mixed = False

    def flat(indices: tuple[tir.Expr, ...], buffer: tir.Buffer) -> tuple[tir.Expr, ...]:
        nonlocal mixed
        # A flat index adds up its parts, which must therefore have one type.
        mixed = mixed or len({index.dtype for index in indices}) > 1
        return (flat_index(buffer, indices),)

    def rule(node: Node) -> Node | None:
        match node:
            case tir.BufferLoad(buffer, indices) if _has_axes(buffer):
                return tir.BufferLoad(_flat(buffer), flat(indices, buffer))
            case tir.BufferStore(buffer, indices, value) if _has_axes(buffer):
                return tir.BufferStore(_flat(buffer), flat(indices, buffer), value)
            case (
                tir.AccessPtr(buffer)
                | tir.Allocate(buffer)
                | tir.AllocateConst(buffer)
                | tir.DeclBuffer(buffer)
            ) if _has_axes(buffer):
                return replace(node, buffer=_flat(buffer))
        return None

    params: list[tir.Param] = []
    for param in func.params:
        if isinstance(param.value, tir.Buffer) and _has_axes(param.value):
            param = replace(param, value=_flat(param.value))
        params.append(param)
    flat_func = replace(rewrite_func(func, rule), params=tuple(params))
    return None if mixed else flat_func


def _has_axes(buffer: tir.Buffer) -> bool:
    is_flat = len(buffer.shape) == 1 and buffer.strides is None
    return buffer.scope != "reg" and not is_flat


def _flat(buffer: tir.Buffer) -> tir.Buffer:
    return replace(buffer, shape=(buffer.span_elements,), strides=None)
