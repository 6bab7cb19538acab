"""Kernels that compute their result in the memory of an input, such as an update of a state."""

from collections.abc import Mapping
from dataclasses import replace

from firmwright.ir import tir
from firmwright.ir.graph.nodes import Call, Value
from firmwright.ir.tir.inplace_distance import find_offset_constraints
from firmwright.ir.tir.rewrite import EMPTY_STMT, substitute
from firmwright.ir.tir.traversal import child_statements, map_children, used_buffers


def in_place_kernel(kernel: tir.PrimFunc, call: Call, state: Value) -> tir.PrimFunc | None:
    """Return the kernel of `call` with its result in the memory of the input `state`.

    The result has no parameter. Returns None if the kernel would overwrite elements before their
    last read, or if the types differ.
    """
    positions = [k for k, value in enumerate(call.variables) if value == state]
    if len(positions) != 1 or len(call.outputs) != 1:
        return None
    source, result = kernel.params[positions[0]].value, kernel.params[len(call.variables)].value
    if not isinstance(source, tir.Buffer) or not isinstance(result, tir.Buffer):
        return None
    if (source.shape, source.dtype) != (result.shape, result.dtype):
        return None
    memory = {source.name: source.name, result.name: source.name}
    body = _without_self_copies(kernel.body, memory)
    if source.name in used_buffers(body):
        limits = find_offset_constraints(kernel, source.name, result.name)
        if limits is None or any(limit.lo < 0 < limit.hi for limit in limits):
            return None
    params = (replace(p, role="inout") if p.value == source else p for p in kernel.params)
    kept = tuple(param for param in params if param.value != result)
    return replace(kernel, params=kept, body=substitute(body, {}, {result.name: source}))


def _without_self_copies(node: tir.Stmt, memory: Mapping[str, object]) -> tir.Stmt:
    """Remove stores of elements that were loaded from the same place, and unused views.

    Buffers with equal values in `memory` are the same elements.
    """
    match node:
        case tir.DeclBuffer(buffer, tir.AccessPtr(source, offset)):
            place = (memory.get(source.name), offset, buffer.shape, buffer.strides, buffer.dtype)
            if place[0] is not None:
                memory = {**memory, buffer.name: place}
        case tir.BufferStore(buffer, indices, tir.BufferLoad(read, places)) if indices == places:
            if buffer.name in memory and memory[buffer.name] == memory.get(read.name):
                return EMPTY_STMT
    inner = child_statements(node)
    node = map_children(
        node, lambda part: _without_self_copies(part, memory) if part in inner else part
    )
    is_unused = isinstance(node, tir.DeclBuffer) and node.buffer.name not in used_buffers(node.body)
    return node.body if isinstance(node, tir.DeclBuffer) and is_unused else node
