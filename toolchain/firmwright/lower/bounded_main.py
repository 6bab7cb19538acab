"""The AOT main of a module with a bounded axis: it passes the size to kernels."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from firmwright.base.c_identifiers import UniqueNamer
from firmwright.ir import tir
from firmwright.ir.bounded_axis import BoundedAxis
from firmwright.ir.module import IRModule
from firmwright.ir.tir.builder import INDEX
from firmwright.ir.tir.traversal import (
    Node,
    local_names,
    rewrite_stmt,
    substitute,
    with_body,
)
from firmwright.lower.bounded_kernels import BoundedKernel
from firmwright.passes.tir.unroll import rename_declarations


def bind_axis(
    module: IRModule, axis: BoundedAxis, kernels: Mapping[str, Sequence[BoundedKernel]]
) -> IRModule:
    """Return the module with these kernels, and a main that passes the size to them.

    `kernels` are by the name of the kernel of the largest size. A size has the last one
    that suits it, or else the first one.
    """
    functions, constants = dict(module.functions), dict(module.constants)
    for name, variants in kernels.items():
        functions[name] = _joined(variants, axis)
        for variant in variants:
            constants.update(variant.constants)
    main = module.aot_main

    def rule(node: Node) -> Node | None:
        if not isinstance(node, tir.PrimFuncCall) or node.callee not in kernels:
            return None
        return replace(node, args=(*node.args, axis.variable))

    body = _with_size(rewrite_stmt(main.body, rule), module, axis)
    functions[main.name] = with_body(main, body)
    return replace(module, functions=functions, constants=constants)


def _joined(kernels: Sequence[BoundedKernel], axis: BoundedAxis) -> tir.PrimFunc:
    """Return one kernel whose conditions on the size select the code of `kernels`."""
    first, *others = kernels
    names = UniqueNamer(local_names(first.function))
    tensors: dict[str, tir.Buffer] = {}
    for param in first.function.params:
        if isinstance(param.value, tir.Buffer):
            tensors[param.name] = param.value
    body = first.function.body
    for kernel in others:
        # The first kernel has the largest tensors.
        own = substitute(kernel.function.body, {}, tensors)
        own = rename_declarations(own, names)
        body = tir.If(_is_in(kernel, axis), own, body)
    attrs = dict(first.function.attrs)
    attrs.pop("inplace_distances", None)
    known = [kernel.distances for kernel in kernels if kernel.distances is not None]
    if len(known) == len(kernels):
        lows, highs = zip(*known, strict=True)
        attrs["inplace_distances"] = (min(lows), max(highs))
    schedules = dict.fromkeys(str(k.function.attrs["schedule"]) for k in kernels)
    attrs["schedule"] = ", ".join(schedules)
    return replace(with_body(first.function, body), attrs=attrs)


def _is_in(kernel: BoundedKernel, axis: BoundedAxis) -> tir.Expr:
    """Return the condition that the size is one of the kernel's."""
    size: tir.Expr = axis.variable
    rest = tir.IntImm(kernel.sizes.rest, size.dtype)
    if kernel.sizes.modulus:
        modulus = tir.IntImm(kernel.sizes.modulus, size.dtype)
        size = tir.Binary("mod", size, modulus)
    return tir.Binary("eq", size, rest)


def _with_size(body: tir.Stmt, module: IRModule, axis: BoundedAxis) -> tir.Stmt:
    """Load the size from its input before the views and the calls of a main."""
    (tensor,) = [each for each in module.io.inputs if each.name == axis.name]
    buffers = {p.name: p.value for p in module.aot_main.params}
    scopes: list[tir.Allocate | tir.AllocateConst] = []
    while isinstance(body, tir.Allocate | tir.AllocateConst):
        scopes.append(body)
        buffers[body.buffer.name] = body.buffer
        body = body.body
    buffer = buffers[tensor.buffer]
    assert isinstance(buffer, tir.Buffer)
    zeros = (tir.IntImm(0, INDEX),) * len(buffer.shape)
    body = tir.Let(axis.variable, tir.BufferLoad(buffer, zeros), body)
    for scope in reversed(scopes):
        body = replace(scope, body=body)
    return body
