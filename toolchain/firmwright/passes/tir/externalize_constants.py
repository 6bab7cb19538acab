"""Conversion of linked constants to kernel parameters, declared once in the AOT main.

Each `AllocateConst` of a kernel becomes a parameter of role `const`, appended in order;
the main wraps its body in one `AllocateConst` per constant and passes pointers.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from firmwright.base.c_identifiers import UniqueNamer
from firmwright.ir import tir
from firmwright.ir.graph.devices import core_targets
from firmwright.ir.module import AnyFunction, IRModule, Pass
from firmwright.ir.tir.builder import whole_buffer
from firmwright.ir.tir.traversal import (
    Node,
    local_names,
    rewrite_stmt,
    statements,
    substitute,
)

ExtraArguments: TypeAlias = tuple[tuple[str, tir.Buffer] | tir.IntImm, ...]
"""Arguments to append to a call: constants (name and parameter) and immediates."""


def linked_constants(func: tir.PrimFunc) -> list[tir.AllocateConst]:
    """Return the declarations of constants in a function, in the order of the text."""
    declarations: list[tir.AllocateConst] = []
    for stmt in statements(func.body):
        if isinstance(stmt, tir.AllocateConst):
            declarations.append(stmt)
    return declarations


def with_const_params(func: tir.PrimFunc, names: Sequence[str]) -> tir.PrimFunc:
    """Return the function with the linked buffers `names` as further parameters."""
    if not names:
        return func
    buffers = {node.buffer.name: node.buffer for node in linked_constants(func)}
    added = tuple(tir.Param(buffers[name], "const") for name in names)
    body = without_linked_constants(func.body, names)
    return replace(func, params=func.params + added, body=body)


def without_linked_constants(body: tir.Stmt, names: Collection[str]) -> tir.Stmt:
    """Return the body without the declarations of the linked buffers `names`."""

    def rule(node: Node) -> Node | None:
        if isinstance(node, tir.AllocateConst) and node.buffer.name in names:
            return node.body
        return None

    return rewrite_stmt(body, rule)


def differing_constants(kernels: Sequence[tir.PrimFunc]) -> list[str]:
    """Return the linked buffers that hold different constants in different kernels."""
    differing: list[str] = []
    for nodes in zip(*(linked_constants(kernel) for kernel in kernels), strict=True):
        if len({node.constant for node in nodes}) > 1:
            differing.append(nodes[0].buffer.name)
    return differing


def constant_arguments(kernel: tir.PrimFunc, names: Sequence[str]) -> ExtraArguments:
    """Return the arguments for the parameters that `with_const_params` adds."""
    nodes = {node.buffer.name: node for node in linked_constants(kernel)}
    return tuple((nodes[name].constant, nodes[name].buffer) for name in names)


class _MainConstants:
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
        return whole_buffer(buffer, "r")

    def around(self, body: tir.Stmt) -> tir.Stmt:
        by_name = {buffer.name: buffer for buffer in self._buffers.values()}
        body = substitute(body, {}, by_name)
        for constant, buffer in reversed(self._buffers.items()):
            body = tir.AllocateConst(buffer, constant, body)
        return body


def redirect_calls(
    module: IRModule,
    functions: Mapping[str, AnyFunction],
    calls: Mapping[str, tuple[str, ExtraArguments]],
) -> IRModule:
    """Return `module` with `functions` and other calls in its main, if any changed."""
    if not calls:
        return module
    main = module.entry
    assert isinstance(main, tir.PrimFunc)  # the callers leave modules without one alone
    constants = _MainConstants(main)

    def rule(node: Node) -> Node | None:
        if not isinstance(node, tir.PrimFuncCall) or node.callee not in calls:
            return None
        callee, extra = calls[node.callee]
        args = list(node.args)
        for argument in extra:
            if isinstance(argument, tir.IntImm):
                args.append(argument)
            else:
                constant, parameter = argument
                args.append(constants.pointer(constant, parameter))
        return replace(node, callee=callee, args=tuple(args))

    main = replace(main, body=constants.around(rewrite_stmt(main.body, rule)))
    return replace(module, functions={**functions, main.name: main})


def externalize(
    module: IRModule,
    is_selected: Callable[[str], bool] = lambda _: True,
    has_params: Callable[[tir.PrimFunc], bool] = lambda _: True,
) -> IRModule:
    """Turn selected linked constants of kernels into parameters, kept by the main.

    Only kernels for which `has_params` is true get such parameters.
    """
    entry = module.find_entry()
    if not isinstance(entry, tir.PrimFunc):
        return module
    functions = dict(module.functions)
    calls: dict[str, tuple[str, ExtraArguments]] = {}
    for name, func in module.functions.items():
        if isinstance(func, tir.PrimFunc) and func is not entry and has_params(func):
            names: list[str] = []
            for node in linked_constants(func):
                if is_selected(node.constant):
                    names.append(node.buffer.name)
            if names:
                functions[name] = with_const_params(func, names)
                calls[name] = name, constant_arguments(func, names)
    return redirect_calls(module, functions, calls)


def _externalize_required(module: IRModule) -> IRModule:
    """Pass all constants, or in a linked model those of kernels in other C files."""
    apart = core_targets(module)
    if not (apart and module.settings.link_params):
        return externalize(module)
    return externalize(
        module, has_params=lambda func: func.attrs.get("target") in apart
    )


PASS = Pass("externalize-constants", _externalize_required)
