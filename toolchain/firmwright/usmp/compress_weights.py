"""Stores weights coded where that saves flash, and decodes them in the kernel (decision 0081).

A kernel decodes into a scratch buffer. If a loop reads the weights row by row, an outer loop
decodes one block of rows at a time, and runs the kernel for these. The fewest blocks are chosen
whose buffer fits in the memory plan.
"""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import NDArray

from firmwright.base.dtypes import INT32, UINT8, UINT16
from firmwright.base.errors import DoesNotFitError
from firmwright.base.weight_code import encode_blocks
from firmwright.ir import tir
from firmwright.ir.core import Constant
from firmwright.ir.module import IRModule
from firmwright.ir.tir import traversal
from firmwright.ir.tir.affine import Bounds
from firmwright.ir.tir.builder import INDEX, ArithExpr, Builder, as_expr
from firmwright.ir.tir.flat_index import flat_index
from firmwright.ir.tir.memory_effects import MemoryEffectAnalysis
from firmwright.ir.tir.traversal import EMPTY_STMT, Node, rewrite_stmt, statements, substitute
from firmwright.passes.tir.externalize_constants import linked_constants, without_linked_constants
from firmwright.passes.tir.outline_common_kernels import EstimateCost
from firmwright.usmp.heuristics import best_first_fit_planner
from firmwright.usmp.interference import InplaceCache
from firmwright.usmp.memory_planning import plan_memory

_ACCESSES = tir.BufferLoad | tir.AccessPtr
_LEAST_BYTES = _BLOCK_BYTES = 512
_CALL_BYTES, _DECODER_BYTES = 64, 120
"""Code of the call and the loop around it, and of the decoder."""
_GROWTH_BYTES, _GROWTH_SHARE, _FREE_SHARE = 4096, 2, 8
"""The workspace may grow by the first or this part of the flash saved; for fewer blocks by less."""


def compress_weights(module: IRModule, price: EstimateCost) -> IRModule:
    """Code weights if the option asks for it; `price` gives the code bytes of kernels."""
    if not module.attrs.get("compress_weights") or not isinstance(module.entry, tir.PrimFunc):
        return module
    cache, original, chosen = InplaceCache(), module, list[_CodedLayer]()
    before = _workspace_bytes(module, cache)
    free = before + before // _FREE_SHARE
    for layer in _worthwhile_layers(module, price):
        options = replace(layer, kernel=module.kernel(layer.kernel.name)).options()
        sizes = [_workspace_bytes(option.applied_to(module), cache) for option in options]
        growth = max(_GROWTH_BYTES, layer.saved_bytes // _GROWTH_SHARE)
        limit = sys.maxsize - 1 if "ram_bytes" in module.attrs else before + growth
        if min(sizes) <= max(free, limit):
            free = max(free, min(sizes))
            chosen.append(next(o for o, size in zip(options, sizes, strict=True) if size <= free))
            module = chosen[-1].applied_to(module)
    saved_bytes = sum(layer.saved_bytes for layer in chosen)
    if saved_bytes <= _DECODER_BYTES:
        return original
    return module.with_attrs(compressed_bytes=saved_bytes + _CALL_BYTES * len(chosen))


def _worthwhile_layers(module: IRModule, price: EstimateCost) -> list[_CodedLayer]:
    """Return the layers that save flash, although they no longer share code with the others.

    The largest is first: after a kernel runs in blocks, its other constants cannot change these.
    """
    main = module.aot_main.body
    loops = [node for node in statements(main) if isinstance(node, tir.For | tir.While)]
    calls = Counter(call.callee for node in (main, *loops) for call in traversal.prim_calls(node))
    groups: dict[tuple[object, ...], list[_CodedLayer]] = {}
    for kernel in map(module.kernel, calls):
        for node in linked_constants(kernel):
            key = kernel.attrs.get("op"), kernel.attrs.get("schedule"), node.buffer.name
            layer = _CodedLayer(kernel, node, module.constants[node.constant])
            groups.setdefault(key, []).append(layer)
    chosen: list[_CodedLayer] = []
    for (_, schedule, _), group in groups.items():
        once = [layer for layer in group if schedule and calls[layer.kernel.name] == 1]
        able = [layer for layer in once if layer.constant.size_bytes >= _LEAST_BYTES]
        saving = [layer for layer in able if layer.saved_bytes > 0]
        is_apart = saving != group and module.attrs.get("optimize") != "speed"
        code_bytes = price(group[0].kernel, {}).code_bytes if is_apart else 0
        sets = [saving, group] if able == group else [saving]
        gains = [sum(layer.saved_bytes for layer in layers) for layers in sets]
        gains[0] -= code_bytes
        chosen += sets[gains.index(max(gains))] if max(gains) > 0 else []
    return sorted(chosen, key=lambda layer: -layer.constant.size_bytes)


def _workspace_bytes(module: IRModule, cache: InplaceCache) -> int:
    """Return the bytes of a quick plan; more than any limit if there is none."""
    with suppress(DoesNotFitError):
        plan = plan_memory(module, best_first_fit_planner, cache).plan
        return plan.workspace_bytes if plan else 0
    return sys.maxsize


@dataclass(frozen=True, eq=False)
class _CodedLayer:
    """A linked constant of a kernel in `blocks` blocks of the rows that `loop` reads."""

    kernel: tir.PrimFunc
    node: tir.AllocateConst
    constant: Constant
    loop: tir.For | None = None
    blocks: int = 1

    @cached_property
    def words(self) -> NDArray[np.uint16]:
        return encode_blocks(np.frombuffer(self.constant.data, np.uint8).reshape(self.blocks, -1))

    @property
    def saved_bytes(self) -> int:
        return self.constant.size_bytes - self.words.nbytes - _CALL_BYTES

    def options(self) -> list[_CodedLayer]:
        """Return the layer in one block, and in more if that saves flash."""
        buffer, (loop, rows) = self.node.buffer, self._row_loop()
        most = min(rows, buffer.size_bytes // _BLOCK_BYTES)
        counts = [n for n in range(2, most + 1) if rows % n == 0 and buffer.shape[0] % n == 0]
        parts = [replace(self, loop=loop, blocks=count) for count in counts]
        return [self, *(part for part in parts if part.saved_bytes > 0)]

    def _row_loop(self) -> tuple[tir.For | None, int]:
        """Return a loop that reads one row of the weights at a time, and the number of rows."""
        buffer, uses = self.node.buffer, _uses(self.kernel.body, self.node.buffer)
        nodes = [node for node in statements(self.kernel.body) if isinstance(node, tir.For)]
        loops = [(n, n.extent.value) for n in nodes if isinstance(n.extent, tir.IntImm)]
        bounds = Bounds({loop.var.name: (0, rows - 1) for loop, rows in loops})
        for loop, rows in loops:
            if rows > 1 and buffer.elements % rows == 0 and loop.start == tir.IntImm(0, INDEX):
                row = buffer.elements // rows
                first = ArithExpr(loop.var) * row
                limits = [bounds.interval_of(as_expr(ArithExpr(at) - first)) for at, _ in uses]
                is_by_row = all(
                    limit is not None and limit[0] >= 0 and limit[1] + extent <= row
                    for limit, (_, extent) in zip(limits, uses, strict=True)
                )
                if is_by_row and self._may_run_in_parts(loop):
                    return loop, rows
        return None, 1

    def _may_run_in_parts(self, loop: tir.For) -> bool:
        """Return whether the rest of the kernel uses nothing that the loop writes."""
        rest = rewrite_stmt(self.kernel.body, lambda node: EMPTY_STMT if node is loop else None)
        effects = MemoryEffectAnalysis(self.kernel, {})
        written = {effect.root for effect in effects.effects_of(loop) if effect.written}
        stmts = [stmt for stmt in statements(rest) if not isinstance(stmt, tir.DeclBuffer)]
        read = {effect.root for stmt in stmts for effect in effects.own_effects_of(stmt)}
        return not written & read and all(param.role != "inout" for param in self.kernel.params)

    def applied_to(self, module: IRModule) -> IRModule:
        weights, b = self.node.buffer, Builder(self.kernel.name)
        for name in traversal.local_names(self.kernel) - {weights.name}:
            b.unique(name)
        size, alignment = self.constant.size_bytes // self.blocks, max(4, weights.alignment)
        shape = weights.shape[0] // self.blocks, *weights.shape[1:]
        body = without_linked_constants(self.kernel.body, {weights.name})
        coded = b.constant(f"{weights.name}_coded", self.words, UINT16)
        decoded = b.allocate("decoded", UINT8, (size,), alignment)
        with b.for_("block", self.blocks) as block:
            pointers = b.pointer(decoded, 0, size, "w"), b.pointer(coded, 0, coded.elements)
            b.evaluate("decode_weights", [*pointers, block.cast(INT32), size])
            view = b.view(weights.name, decoded, 0, shape, dtype=weights.dtype, alignment=alignment)
            row = tir.Var(b.unique("row"), INDEX)
            body = self._rows_of_block(body, block, row) if self.loop else body
            b.append(substitute(body, {}, {weights.name: view}))
        module = replace(module, constants={**module.constants, **b.constants})
        return module.with_function(replace(self.kernel, body=b.build().body))

    def _rows_of_block(self, body: tir.Stmt, block: ArithExpr, row: tir.Var) -> tir.Stmt:
        loop = cast("tir.For", self.loop)
        rows = cast("tir.IntImm", loop.extent).value // self.blocks
        number = as_expr(block * rows + ArithExpr(row))

        def rule(node: Node) -> Node | None:
            if isinstance(node, tir.For) and node.var == loop.var:
                inner = tir.Let(loop.var, number, node.body)
                return replace(node, var=row, extent=tir.IntImm(rows, INDEX), body=inner)
            if isinstance(node, _ACCESSES) and node.buffer.name == self.node.buffer.name:
                return substitute(cast("tir.Stmt", node), {loop.var.name: row})
            return None

        return rewrite_stmt(body, rule)


def _uses(body: tir.Stmt, buffer: tir.Buffer) -> list[tuple[tir.Expr, int]]:
    """Return the offset and the extent of each access to a buffer."""
    nodes = [node for node in traversal.walk(body) if isinstance(node, _ACCESSES)]
    own = (node for node in nodes if node.buffer.name == buffer.name)
    return [
        (n.offset, n.extent) if isinstance(n, tir.AccessPtr) else (flat_index(buffer, n.indices), 1)
        for n in own
    ]
