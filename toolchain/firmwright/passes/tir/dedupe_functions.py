"""Merging of kernels that differ only in linked constants and a few scalar immediates.

Runs on a planned module. The differences become `const` and `scalar` parameters of the
first kernel of a group; operator, schedule, target and body must be equal. Only
immediates that are cheap as variables are abstracted: operands of sums, clamps and
products in stored values, and register operands of intrinsics.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

from firmwright.base.dtypes import INT32
from firmwright.base.grouping import group_pairs
from firmwright.ir import tir
from firmwright.ir.module import IRModule, Pass
from firmwright.ir.tir.intrinsic import IntrinsicTable
from firmwright.ir.tir.traversal import Node, local_names, map_children, rewrite_func
from firmwright.ops.intrinsics import BASE_INTRINSICS
from firmwright.passes.tir.externalize_constants import (
    ExtraArguments,
    constant_arguments,
    differing_constants,
    linked_constants,
    redirect_calls,
    with_const_params,
)

SCALARS_MAX = 8
"""Limit of differing immediates, beyond which call overhead exceeds the savings."""

_PASSED = frozenset({"add", "sub", "mul", "min", "max"})


@dataclass(frozen=True, slots=True)
class _KernelShape:
    """A kernel, its body without constants and scalars, and the scalars in order."""

    func: tir.PrimFunc
    body: tir.Stmt
    scalars: tuple[tir.IntImm, ...]

    @property
    def key(self) -> tuple[object, ...]:
        attrs = dict(self.func.attrs)
        attrs.pop("comment", None)
        return (self.func.params, tuple(sorted(attrs.items())), self.body)


def can_be_merged(kernels: Sequence[tir.PrimFunc], intrinsics: IntrinsicTable) -> bool:
    """Return whether kernels differ only in constants and up to SCALARS_MAX scalars."""
    shapes = [_shape(func, intrinsics) for func in kernels]
    if len({shape.key for shape in shapes}) != 1:
        return False
    return len(_differing(shapes)) <= SCALARS_MAX


def _shape(func: tir.PrimFunc, intrinsics: IntrinsicTable) -> _KernelShape:
    scalars: list[tir.IntImm] = []

    def rule(node: Node) -> Node | None:
        if isinstance(node, tir.AllocateConst):
            return replace(node, constant="")
        if isinstance(node, tir.BufferStore):
            value = _abstract_immediates(node.value, scalars, intrinsics)
            return None if value is node.value else replace(node, value=value)
        return None

    return _KernelShape(func, rewrite_func(func, rule).body, tuple(scalars))


def _abstract_immediates(
    node: tir.Expr, scalars: list[tir.IntImm], intrinsics: IntrinsicTable
) -> tir.Expr:
    def abstracted(part: tir.Expr) -> tir.Expr:
        return _abstract_immediates(part, scalars, intrinsics)

    match node:
        case tir.IntImm(_, dtype) if dtype == INT32:
            scalars.append(node)
            return _placeholder(len(scalars) - 1)
        case tir.Binary(op) if op in _PASSED:
            return map_children(node, abstracted)
        case tir.Cast(_, value) if not isinstance(value, tir.IntImm):
            return map_children(node, abstracted)
        case tir.Select(cond, a, b):
            return tir.Select(cond, abstracted(a), abstracted(b))
        case tir.IntrinsicCall(name, args) if name in intrinsics:
            new_args: list[tir.Expr] = []
            for operand, arg in zip(intrinsics[name].operands, args, strict=True):
                new_args.append(abstracted(arg) if operand.kind == "in" else arg)
            return replace(node, args=tuple(new_args))
    return node


def _placeholder(number: int) -> tir.Var:
    return tir.Var(f"#{number}", INT32)


def _groups(
    module: IRModule, intrinsics: IntrinsicTable
) -> Iterator[list[_KernelShape]]:
    """Yield the kernels that can be merged: few of their scalars differ, or none."""
    shapes: dict[tuple[object, ...], list[_KernelShape]] = {}
    for func in module.functions.values():
        if not isinstance(func, tir.PrimFunc):
            continue
        if "aot_main" not in func.attrs and "code" not in func.attrs:
            shape = _shape(func, intrinsics)
            shapes.setdefault(shape.key, []).append(shape)
    for members in shapes.values():
        if len(_differing(members)) <= SCALARS_MAX:
            yield members
        else:
            pairs = [(member.scalars, member) for member in members]
            yield from group_pairs(pairs).values()


def _differing(members: Sequence[_KernelShape]) -> list[int]:
    """Return the positions of the scalars that are not equal in all members."""
    differing: list[int] = []
    columns = zip(*(member.scalars for member in members), strict=True)
    for position, values in enumerate(columns):
        if len(set(values)) > 1:
            differing.append(position)
    return differing


def _merged_function(members: Sequence[_KernelShape]) -> tir.PrimFunc:
    first, kernels = members[0], [member.func for member in members]
    names = _scalar_names(local_names(first.func))
    scalars: dict[int, tir.Var] = {}
    for number in _differing(members):
        scalars[number] = tir.Var(next(names), INT32)
    added = tuple(tir.Param(var, "scalar") for var in scalars.values())
    func = _with_scalars(first, scalars)
    func = with_const_params(func, differing_constants(kernels))
    comments = dict.fromkeys(str(kernel.attrs.get("comment", "")) for kernel in kernels)
    attrs = {**func.attrs, "comment": "\n".join(filter(None, comments))}
    return replace(func, params=func.params + added, attrs=attrs)


def _scalar_names(local: Collection[str]) -> Iterator[str]:
    """Yield names of parameters that do not occur among the names `local`."""
    for number in count():
        name = f"scalar_{number}"
        if name not in local:
            yield name


def _with_scalars(shape: _KernelShape, scalars: dict[int, tir.Var]) -> tir.PrimFunc:
    if not scalars:
        return shape.func
    values: dict[str, tir.Expr] = {}
    for number, immediate in enumerate(shape.scalars):
        values[_placeholder(number).name] = scalars.get(number, immediate)
    constants: dict[str, str] = {}
    for declaration in linked_constants(shape.func):
        constants[declaration.buffer.name] = declaration.constant

    def rule(node: Node) -> Node | None:
        if isinstance(node, tir.Var):
            return values.get(node.name)
        if isinstance(node, tir.AllocateConst):
            return replace(node, constant=constants[node.buffer.name])
        return None

    return rewrite_func(replace(shape.func, body=shape.body), rule)


def dedupe_functions(
    module: IRModule, intrinsics: IntrinsicTable = BASE_INTRINSICS
) -> IRModule:
    """Return `module` with equal kernels merged, or `module` itself if there are none.

    `intrinsics` determines which arguments of intrinsics may be variables; calls of
    unknown intrinsics are not changed.
    """
    entry = module.find_entry()
    if not isinstance(entry, tir.PrimFunc):
        return module
    functions = dict(module.functions)
    calls: dict[str, tuple[str, ExtraArguments]] = {}
    for members in _groups(module, intrinsics):
        if len(members) < 2:
            continue
        survivor = members[0].func.name
        constants = differing_constants([member.func for member in members])
        numbers = _differing(members)
        for member in members:
            scalars = tuple(member.scalars[number] for number in numbers)
            extra = (*constant_arguments(member.func, constants), *scalars)
            calls[member.func.name] = survivor, extra
        for member in members[1:]:
            del functions[member.func.name]
        functions[survivor] = _merged_function(members)
    return redirect_calls(module, functions, calls)


PASS = Pass("dedupe-functions", dedupe_functions)
