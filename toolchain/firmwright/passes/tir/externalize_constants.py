"""Makes constants parameters: kernels get pointers, the AOT main holds the constants.

In: a module whose entry is an AOT main. Out: no kernel links a constant; each of its former
`AllocateConst`s is a parameter of role `const`, appended in order, and the main wraps its body in
one `AllocateConst` for each constant and passes pointers. This is what `--no-link-params` needs
(one place that names every constant) and what merging kernels and reading constants from other
memory are made of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from firmwright.base.c_identifiers import UniqueNamer
from firmwright.ir import tir
from firmwright.ir.module import IRModule, Pass
from firmwright.ir.tir.builder import INDEX
from firmwright.ir.tir.rewrite import rewrite_stmt
from firmwright.ir.tir.traversal import Node, local_names, statements


def linked_constants(func: tir.PrimFunc) -> list[tir.AllocateConst]:
    """The constants that `func` links, in order of the text."""
    return [node for node in statements(func.body) if isinstance(node, tir.AllocateConst)]


def with_const_params(func: tir.PrimFunc, names: Sequence[str]) -> tir.PrimFunc:
    """`func` with those linked buffers as parameters."""
    if not names:
        return func
    moved = frozenset(names)

    def rule(node: Node) -> Node | None:
        is_moved = isinstance(node, tir.AllocateConst) and node.buffer.name in moved
        return node.body if is_moved and isinstance(node, tir.AllocateConst) else None

    buffers = {node.buffer.name: node.buffer for node in linked_constants(func)}
    added = tuple(tir.Param(buffers[name], "const") for name in names)
    return replace(func, params=func.params + added, body=rewrite_stmt(func.body, rule))


class MainConstants:
    """Buffers of the AOT main that stand for constants: one each, declared around its body."""

    def __init__(self, main: tir.PrimFunc) -> None:
        self._names = UniqueNamer(local_names(main))
        self._buffers: dict[str, tir.Buffer] = {}

    def pointer(self, constant: str, like: tir.Buffer) -> tir.AccessPtr:
        """The argument for a const parameter `like`."""
        known = self._buffers.get(constant)
        if known is None:
            known = replace(like, name=self._names.unique(constant))
        elif like.alignment > known.alignment:
            known = replace(known, alignment=like.alignment)
        self._buffers[constant] = known
        return tir.AccessPtr(known, tir.IntImm(0, INDEX), known.elements, "r")

    def around(self, body: tir.Stmt) -> tir.Stmt:
        """`body` with the constants declared, and with the final alignment of each."""
        final = {buffer.name: buffer for buffer in self._buffers.values()}

        def rule(node: Node) -> Node | None:
            if (
                isinstance(node, tir.AccessPtr)
                and final.get(node.buffer.name, node.buffer) != node.buffer
            ):
                return replace(node, buffer=final[node.buffer.name])
            return None

        body = rewrite_stmt(body, rule)
        for constant, buffer in reversed(self._buffers.items()):
            body = tir.AllocateConst(buffer, constant, body)
        return body


def redirect_calls(
    main: tir.PrimFunc,
    constants: MainConstants,
    calls: Mapping[str, tuple[str, tuple[tuple[str, tir.Buffer] | tir.IntImm, ...]]],
) -> tir.PrimFunc:
    """`main` with calls of the functions in `calls` sent elsewhere, with arguments appended.

    An appended argument is a constant (its name and the parameter it is for) or an immediate.
    """

    def rule(node: Node) -> Node | None:
        if not isinstance(node, tir.PrimFuncCall) or node.callee not in calls:
            return None
        callee, extra = calls[node.callee]
        added: list[tir.Expr] = [
            item if isinstance(item, tir.IntImm) else constants.pointer(*item) for item in extra
        ]
        return replace(node, callee=callee, args=(*node.args, *added))

    return replace(main, body=constants.around(rewrite_stmt(main.body, rule)))


def run(module: IRModule) -> IRModule:
    """Hoists every constant of every kernel that the AOT main calls."""
    return externalize(module, lambda constant: True)


def externalize(module: IRModule, wanted: Callable[[str], bool]) -> IRModule:
    """Hoists the constants whose names are `wanted`."""
    entry = module.functions.get(str(module.attrs.get("entry", "main")))
    if not isinstance(entry, tir.PrimFunc):
        return module
    functions = dict(module.functions)
    calls: dict[str, tuple[str, tuple[tuple[str, tir.Buffer] | tir.IntImm, ...]]] = {}
    for name, func in module.functions.items():
        found = (
            linked_constants(func) if isinstance(func, tir.PrimFunc) and func is not entry else []
        )
        found = [node for node in found if wanted(node.constant)]
        if found and isinstance(func, tir.PrimFunc):
            functions[name] = with_const_params(func, [node.buffer.name for node in found])
            calls[name] = (name, tuple((node.constant, node.buffer) for node in found))
    if not calls:
        return module
    functions[entry.name] = redirect_calls(entry, MainConstants(entry), calls)
    return replace(module, functions=functions)


PASS = Pass("externalize-constants", run)
