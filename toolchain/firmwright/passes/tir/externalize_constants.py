"""Conversion of linked constants to kernel parameters, declared once in the AOT main.

Each `AllocateConst` of a kernel becomes a parameter of role `const`, appended in order; the main
wraps its body in one `AllocateConst` per constant and passes pointers. This serves
`--no-link-params`, function deduplication and constants in separate memory.
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
    return [node for node in statements(func.body) if isinstance(node, tir.AllocateConst)]


def with_const_params(func: tir.PrimFunc, names: Sequence[str]) -> tir.PrimFunc:
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
    """Constants declared around the body of the AOT main, one buffer each."""

    def __init__(self, main: tir.PrimFunc) -> None:
        self._names = UniqueNamer(local_names(main))
        self._buffers: dict[str, tir.Buffer] = {}

    def pointer(self, constant: str, like: tir.Buffer) -> tir.AccessPtr:
        buffer = self._buffers.get(constant)
        if buffer is None:
            buffer = replace(like, name=self._names.unique(constant))
        elif like.alignment > buffer.alignment:
            buffer = replace(buffer, alignment=like.alignment)
        self._buffers[constant] = buffer
        return tir.AccessPtr(buffer, tir.IntImm(0, INDEX), buffer.elements, "r")

    def around(self, body: tir.Stmt) -> tir.Stmt:
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
    """Redirect calls in `main` to other functions and append arguments.

    An appended argument is a constant (its name and its parameter) or an immediate.
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
    return externalize(module, lambda constant: True)


def externalize(module: IRModule, wanted: Callable[[str], bool]) -> IRModule:
    entry = module.functions.get(str(module.attrs.get("entry", "main")))
    if not isinstance(entry, tir.PrimFunc):
        return module
    functions = dict(module.functions)
    calls: dict[str, tuple[str, tuple[tuple[str, tir.Buffer] | tir.IntImm, ...]]] = {}
    for name, func in module.functions.items():
        linked = (
            linked_constants(func) if isinstance(func, tir.PrimFunc) and func is not entry else []
        )
        linked = [node for node in linked if wanted(node.constant)]
        if linked and isinstance(func, tir.PrimFunc):
            functions[name] = with_const_params(func, [node.buffer.name for node in linked])
            calls[name] = (name, tuple((node.constant, node.buffer) for node in linked))
    if not calls:
        return module
    functions[entry.name] = redirect_calls(entry, MainConstants(entry), calls)
    return replace(module, functions=functions)


PASS = Pass("externalize-constants", run)
