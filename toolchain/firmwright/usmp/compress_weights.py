"""Stores weights coded where that saves flash, and decodes them in the kernel.

The decision is 0081.

A kernel decodes into a scratch buffer. If a loop reads the weights row by row, an outer
loop decodes one block of rows at a time, and runs the kernel for these. The fewest
blocks are chosen whose buffer fits in the memory plan.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
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
from firmwright.ir.core import Attr, Constant
from firmwright.ir.module import IRModule
from firmwright.ir.settings import Minimize
from firmwright.ir.tir import traversal
from firmwright.ir.tir.affine import Bounds
from firmwright.ir.tir.builder import INDEX, ArithExpr, Builder, as_expr
from firmwright.ir.tir.flat_index import flat_index
from firmwright.ir.tir.memory_effects import MemoryEffectAnalysis
from firmwright.ir.tir.traversal import (
    EMPTY_STMT,
    Node,
    rewrite_stmt,
    statements,
    substitute,
)
from firmwright.passes.tir.externalize_constants import (
    linked_constants,
    without_linked_constants,
)
from firmwright.passes.tir.outline_common_kernels import EstimateCost
from firmwright.usmp.heuristics import best_first_fit_planner
from firmwright.usmp.interference import InplaceCache
from firmwright.usmp.memory_planning import plan_memory

_ACCESSES = tir.BufferLoad | tir.AccessPtr
_LEAST_BYTES = 512
"""Size of the smallest constant that is coded."""
_BLOCK_BYTES = 512
"""Size of the smallest block: each costs a position of two words, and padding."""
_CALL_BYTES = 64
"""Code of a call of the decoder and the loop around it."""
_DECODER_BYTES = 120
"""Code of the decoder."""
_GROWTH_BYTES = 4096
"""Bytes by which each layer may enlarge the workspace."""
_GROWTH_SHARE = 2
"""A layer may also enlarge the workspace by this part of its saved flash: one half."""
_FREE_SHARE = 8
"""The workspace may grow by this part, one eighth, for a decoder with fewer blocks."""


def compress_weights(module: IRModule, price: EstimateCost) -> IRModule:
    """Code weights if the option asks for it; `price` gives the code bytes of kernels.

    Without a RAM budget, each layer may enlarge the workspace by a limit. With one, the
    plan must only exist, as planning fails above the budget.
    """
    is_asked = module.settings.objective.has_coded_weights
    if not is_asked or not isinstance(module.entry, tir.PrimFunc):
        return module
    original = module
    cache = InplaceCache()
    chosen: list[_CodedLayer] = []
    before = _workspace_bytes(module, cache)
    free = before + before // _FREE_SHARE
    for layer in _worthwhile_layers(module, price):
        options = replace(layer, kernel=module.kernel(layer.kernel.name)).options()
        sizes: list[int] = []
        for option in options:
            sizes.append(_workspace_bytes(option.applied_to(module), cache))
        limit = sys.maxsize - 1
        if module.settings.objective.has_free_ram:
            limit = before + max(_GROWTH_BYTES, layer.saved_bytes // _GROWTH_SHARE)
        smallest = min(sizes)
        if smallest <= max(free, limit):
            free = max(free, smallest)
            fitting = [size <= free for size in sizes]
            fewest_blocks = options[fitting.index(True)]
            chosen.append(fewest_blocks)
            module = fewest_blocks.applied_to(module)
    saved_bytes = _saved_bytes(chosen)
    if saved_bytes <= _DECODER_BYTES:
        return original
    compressed_bytes = saved_bytes + _CALL_BYTES * len(chosen)
    results = replace(module.results, compressed_bytes=compressed_bytes)
    return replace(module, results=results)


def _worthwhile_layers(module: IRModule, price: EstimateCost) -> list[_CodedLayer]:
    """Return the layers that save flash even though they share code no longer.

    The largest is first: after a kernel runs in blocks, its other constants cannot
    change these.
    """
    calls = _weighted_calls(module.aot_main.body)
    groups: dict[_SharedCode, list[_CodedLayer]] = {}
    for name in calls:
        kernel = module.kernel(name)
        op, schedule = kernel.attrs.get("op"), kernel.attrs.get("schedule")
        for node in linked_constants(kernel):
            key = _SharedCode(op, schedule, node.buffer.name)
            layer = _CodedLayer(kernel, node, module.constants[node.constant])
            groups.setdefault(key, []).append(layer)
    is_for_speed = module.settings.objective.minimize is Minimize.SPEED
    chosen: list[_CodedLayer] = []
    for key, group in groups.items():
        if not key.schedule:
            continue
        able: list[_CodedLayer] = []
        for layer in group:
            is_large = layer.constant.size_bytes >= _LEAST_BYTES
            if is_large and calls[layer.kernel.name] == 1:
                able.append(layer)
        chosen += _worthwhile_part(group, able, price, is_for_speed)
    return sorted(chosen, key=lambda layer: -layer.constant.size_bytes)


@dataclass(frozen=True, slots=True)
class _SharedCode:
    """What kernels with shared code have in common, and the buffer of the weights."""

    op: Attr | None
    schedule: Attr | None
    buffer: str


def _weighted_calls(main: tir.Stmt) -> Counter[str]:
    """Count the calls of each kernel; each loop around a call counts it once more."""
    calls: Counter[str] = Counter()
    loops = [node for node in statements(main) if isinstance(node, tir.For | tir.While)]
    for part in (main, *loops):
        for call in traversal.prim_calls(part):
            calls[call.callee] += 1
    return calls


def _worthwhile_part(
    group: list[_CodedLayer],
    able: list[_CodedLayer],
    price: EstimateCost,
    is_for_speed: bool,
) -> list[_CodedLayer]:
    """Return the layers to code among kernels with shared code; `able` can be coded.

    To code only some costs a second copy of the code, except with `--optimize speed`,
    where kernels share no code. To code all keeps the code shared, but includes those
    that lose bytes.
    """
    saving = [layer for layer in able if layer.saved_bytes > 0]
    gain = _saved_bytes(saving)
    # The layers that stay uncoded keep the old code, the coded ones get their own.
    if saving != group and not is_for_speed:
        gain -= price(group[0].kernel, {}).code_bytes
    if able == group and _saved_bytes(group) > max(gain, 0):
        return group
    return saving if gain > 0 else []


def _saved_bytes(layers: Sequence[_CodedLayer]) -> int:
    return sum(layer.saved_bytes for layer in layers)


def _workspace_bytes(module: IRModule, cache: InplaceCache) -> int:
    """Return the bytes of a quick plan; more than any limit if there is none."""
    with suppress(DoesNotFitError):
        plan = plan_memory(module, best_first_fit_planner, cache).plan
        return plan.workspace_bytes if plan else 0
    return sys.maxsize


@dataclass(frozen=True, eq=False)
class _CodedLayer:
    """A linked constant of a kernel, in `blocks` blocks of the rows of `loop`."""

    kernel: tir.PrimFunc
    node: tir.AllocateConst
    constant: Constant
    loop: tir.For | None = None
    blocks: int = 1

    @cached_property
    def words(self) -> NDArray[np.uint16]:
        """The coded blocks, one after the other."""
        data = np.frombuffer(self.constant.data, np.uint8)
        return encode_blocks(data.reshape(self.blocks, -1))

    @property
    def saved_bytes(self) -> int:
        """The flash saved, without the decoder; negative if the code is larger."""
        return self.constant.size_bytes - self.words.nbytes - _CALL_BYTES

    def options(self) -> list[_CodedLayer]:
        """Return the layer in one block, and in more where that saves flash."""
        options = [self]
        loop = self._row_loop()
        if loop is None:
            return options
        buffer, rows = self.node.buffer, _extent(loop)
        most = min(rows, buffer.size_bytes // _BLOCK_BYTES)
        for blocks in range(2, most + 1):
            if rows % blocks == 0 and buffer.shape[0] % blocks == 0:
                part = replace(self, loop=loop, blocks=blocks)
                if part.saved_bytes > 0:
                    options.append(part)
        return options

    def _row_loop(self) -> tir.For | None:
        """Return the first loop that reads one row of the weights at a time."""
        buffer = self.node.buffer
        accesses = _accesses(self.kernel.body, buffer)
        loops: list[tir.For] = []
        for node in statements(self.kernel.body):
            if isinstance(node, tir.For) and isinstance(node.extent, tir.IntImm):
                loops.append(node)
        bounds = Bounds({loop.var.name: (0, _extent(loop) - 1) for loop in loops})
        for loop in loops:
            rows = _extent(loop)
            if rows < 2 or loop.start != tir.IntImm(0, INDEX):
                continue
            row_elements, rest = divmod(buffer.elements, rows)
            if rest:
                continue
            is_by_row = all(
                access.is_in_row(loop, row_elements, bounds) for access in accesses
            )
            if is_by_row and self._may_run_in_parts(loop):
                return loop
        return None

    def _may_run_in_parts(self, loop: tir.For) -> bool:
        """Return whether the rest of the kernel uses nothing that the loop writes."""
        if any(param.role == "inout" for param in self.kernel.params):
            return False

        def without_loop(node: Node) -> Node | None:
            return EMPTY_STMT if node is loop else None

        rest = rewrite_stmt(self.kernel.body, without_loop)
        # In parts, the whole body runs once for each block, the rest of it included.
        # That rest may not depend on the loop: in the second block, it would see what
        # the first one left.
        effects = MemoryEffectAnalysis(self.kernel, {})
        written = {effect.root for effect in effects.effects_of(loop) if effect.written}
        for stmt in statements(rest):
            if isinstance(stmt, tir.DeclBuffer):
                continue
            for effect in effects.own_effects_of(stmt):
                if effect.root in written:
                    return False
        return True

    def applied_to(self, module: IRModule) -> IRModule:
        """Return the module with the coded constant and the kernel that decodes it."""
        weights, b = self.node.buffer, Builder(self.kernel.name)
        for name in traversal.local_names(self.kernel) - {weights.name}:
            b.unique(name)
        size = self.constant.size_bytes // self.blocks
        alignment = max(4, weights.alignment)
        shape = (weights.shape[0] // self.blocks, *weights.shape[1:])
        body = without_linked_constants(self.kernel.body, {weights.name})
        coded = b.constant(f"{weights.name}_coded", self.words, UINT16)
        decoded = b.allocate("decoded", UINT8, (size,), alignment)
        with b.for_("block", self.blocks) as block:
            target = b.pointer(decoded, 0, size, "w")
            source = b.pointer(coded, 0, coded.elements)
            b.evaluate("decode_weights", [target, source, block.cast(INT32), size])
            name, dtype = weights.name, weights.dtype
            view = b.view(name, decoded, 0, shape, dtype=dtype, alignment=alignment)
            row = tir.Var(b.unique("row"), INDEX)
            if self.loop is not None:
                body = self._rows_of_block(body, self.loop, block, row)
            b.append(substitute(body, {}, {name: view}))
        module = replace(module, constants={**module.constants, **b.constants})
        return module.with_function(replace(self.kernel, body=b.build().body))

    def _rows_of_block(
        self, body: tir.Stmt, loop: tir.For, block: ArithExpr, row: tir.Var
    ) -> tir.Stmt:
        """Limit `loop` to the rows of one block.

        Accesses to the weights count rows from the start of the block; all other
        expressions see the row's number in the whole layer, `block * rows + row`.
        """
        rows, weights = _extent(loop) // self.blocks, self.node.buffer
        number = as_expr(block * rows + ArithExpr(row))

        def rule(node: Node) -> Node | None:
            if isinstance(node, tir.For) and node.var == loop.var:
                # for row in block: let i = block * rows + row: body(i), weights at row
                inner = tir.Let(loop.var, number, node.body)
                extent = tir.IntImm(rows, INDEX)
                return replace(node, var=row, extent=extent, body=inner)
            if isinstance(node, _ACCESSES) and node.buffer.name == weights.name:
                return substitute(cast("tir.Stmt", node), {loop.var.name: row})
            return None

        return rewrite_stmt(body, rule)


def _extent(loop: tir.For) -> int:
    return cast("tir.IntImm", loop.extent).value


@dataclass(frozen=True, slots=True)
class _Access:
    """The flat index of the first element of an access, and how many it covers."""

    first: tir.Expr
    elements: int

    def is_in_row(self, loop: tir.For, row_elements: int, bounds: Bounds) -> bool:
        """Return whether iterations of `loop` only access the row of their number."""
        row_start = ArithExpr(loop.var) * row_elements
        limits = bounds.interval_of(as_expr(ArithExpr(self.first) - row_start))
        if limits is None:
            return False
        first, last = limits
        return first >= 0 and last + self.elements <= row_elements


def _accesses(body: tir.Stmt, buffer: tir.Buffer) -> list[_Access]:
    accesses: list[_Access] = []
    for node in traversal.walk(body):
        if not isinstance(node, _ACCESSES) or node.buffer.name != buffer.name:
            continue
        if isinstance(node, tir.AccessPtr):
            accesses.append(_Access(node.offset, node.extent))
        else:
            accesses.append(_Access(flat_index(buffer, node.indices), 1))
    return accesses
