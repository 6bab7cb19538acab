"""Checksums of memory in the AOT main, with the option `--harden`.

    sum of the input                      sums[1]
    conv2d_0(x, y, sum of y)              sums[2], added up while y is stored
    compare the memory of x with sums[1]
    conv2d_1(y, z, sum of z)              sums[3]
    compare the memory of y with sums[2]
    compare the constants with known sums, then the memory of z with sums[3]

A sum adds the bytes of a tensor, modulo 2^32, to the number of its slot: it differs if
a bit has changed or, since all slots are cleared first, if the step that writes it was
left out. A tensor is compared after its last use. Until then nothing else may lie in
its memory, because the comparison reads it. At a difference the run ends with
E_CORRUPT.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from firmwright.base.c_identifiers import UniqueNamer
from firmwright.base.dtypes import HANDLE, UINT8, UINT32
from firmwright.base.errors import UsageError
from firmwright.ir import tir
from firmwright.ir.core import Constant
from firmwright.ir.module import IRModule
from firmwright.ir.tir.builder import INDEX, Builder, call_intrinsic, whole_buffer
from firmwright.ir.tir.intrinsic import IntrinsicTable
from firmwright.ir.tir.memory_effects import MemoryEffectAnalysis
from firmwright.ir.tir.traversal import (
    local_names,
    main_steps,
    make_sequence,
    map_steps,
    prim_calls,
    statements,
    substitute,
    used_constants,
)
from firmwright.ops.memory_sums import (
    ADD_MEMORY_8_WORDS,
    ADD_MEMORY_BYTE,
    ADD_MEMORY_WORD,
    BLOCK_WORDS,
    REQUIRE_EQUAL,
)
from firmwright.passes.tir.column_sums import (
    PRODUCTS,
    find_column_sums,
    largest_constants,
    product_sum_kernel,
    without_products,
)
from firmwright.passes.tir.store_sums import with_store_sum

_WORD_BYTES = 4
_FOUND = 0
"""The slot of the sum that is compared with another one."""
_SUMMED_PERCENT_MAX = 5
"""Limit of the weights of fully connected layers that are summed byte by byte.

In percent of the multiply-adds of a run. A byte takes about half an instruction.
"""


@dataclass(frozen=True, slots=True)
class _Use:
    """A step that accesses a tensor; `is_whole` if it writes exactly all of it."""

    step: int
    reads: bool
    writes: bool
    is_whole: bool


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A planned buffer or parameter of the AOT main with its uses in order."""

    buffer: tir.Buffer
    is_input: bool
    is_output: bool
    uses: tuple[_Use, ...]


@dataclass(frozen=True, slots=True)
class _Checks:
    """Statements before and after the steps; kernels that add up their results."""

    before: dict[int, list[tir.Stmt]] = field(default_factory=dict)
    after: dict[int, list[tir.Stmt]] = field(default_factory=dict)
    at_end: list[tir.Stmt] = field(default_factory=list)
    slot_of_step: dict[int, int] = field(default_factory=dict)
    kernels: dict[str, tir.PrimFunc] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)


def harden(module: IRModule, intrinsics: IntrinsicTable) -> IRModule:
    """Insert the checks if the settings ask for them."""
    main = module.find_entry()
    if not module.settings.harden or not isinstance(main, tir.PrimFunc):
        return module
    _require_supported(module)
    return _Hardening(module, main, intrinsics).run()


def _require_supported(module: IRModule) -> None:
    settings = module.settings
    unsupported = {
        "--devices": settings.devices.names or settings.devices.copiers,
        "--stream-input-rows": module.io.stream_input_rows,
        "a bounded axis": settings.axis,
    }
    for feature, present in unsupported.items():
        if present:
            what = f"--harden and {feature} do not go together."
            raise UsageError(what, where=module.name, hint="omit one of them.")


class _Hardening:
    def __init__(
        self, module: IRModule, main: tir.PrimFunc, intrinsics: IntrinsicTable
    ) -> None:
        self.module = module
        self.main = main
        self.intrinsics = intrinsics
        self.steps = list(main_steps(main.body))
        self.calls = Counter(call.callee for call in prim_calls(main.body))
        self.target = next(iter(module.targets), "")
        name = UniqueNamer(local_names(main)).unique("sums")
        self.sums = tir.Buffer(name, UINT32, (1,), alignment=4)
        self.slots = 1
        self.checks = _Checks()
        self.weights_in_products: set[str] = set()

    def run(self) -> IRModule:
        tensors = list(self._tensors())
        for tensor in tensors:
            self._check_tensor(tensor)
        ending = [*self._check_constants(), *self.checks.at_end]
        self.checks.after.setdefault(len(self.steps) - 1, []).extend(ending)
        main = self._with_checks()
        functions = {**self.module.functions, **self.checks.kernels, main.name: main}
        functions = {name: without_products(f) for name, f in functions.items()}
        constants = {**self.module.constants, **self.checks.constants}
        return replace(self.module, functions=functions, constants=constants)

    # ---- tensors ---------------------------------------------------------------------

    def _tensors(self) -> Iterator[_Tensor]:
        """Yield the buffers whose contents survive a step."""
        found: dict[str, tuple[tir.Buffer, bool, bool]] = {}
        for param in self.main.params:
            if isinstance(param.value, tir.Buffer):
                roles = param.role == "in", param.role == "out"
                found[param.name] = (param.value, *roles)
        for stmt in statements(self.main.body):
            if isinstance(stmt, tir.Allocate) and stmt.buffer.scope == "global":
                is_input = stmt.kind in ("input", "state")
                found[stmt.buffer.name] = (stmt.buffer, is_input, stmt.kind == "output")
        uses = self._uses({name: entry[0] for name, entry in found.items()})
        for name, (buffer, is_input, is_output) in found.items():
            if len(uses[name]) > 1 or (uses[name] and (is_input or is_output)):
                yield _Tensor(buffer, is_input, is_output, tuple(uses[name]))

    def _uses(self, buffers: Mapping[str, tir.Buffer]) -> dict[str, list[_Use]]:
        analysis = MemoryEffectAnalysis(self.main, self.module.functions)
        uses: dict[str, list[_Use]] = {name: [] for name in buffers}
        for index, step in enumerate(self.steps):
            effects = analysis.effects_of(step)
            for name in dict.fromkeys(effect.root for effect in effects):
                if name not in buffers:
                    continue
                own = [effect for effect in effects if effect.root == name]
                written = [(e.first, e.end) for e in own if e.written]
                whole = [(0, buffers[name].size_bytes)]
                use = _Use(
                    index,
                    reads=len(written) < len(own),
                    writes=bool(written),
                    is_whole=written == whole,
                )
                uses[name].append(use)
        return uses

    def _check_tensor(self, tensor: _Tensor) -> None:
        """Add the sums of a tensor, and their comparisons."""
        slot = 0
        if tensor.is_input and tensor.uses[0].reads:
            slot = self._new_slot()
            self._before(0, self._sum(tensor.buffer, slot, slot))
        for use, later in zip(tensor.uses, (*tensor.uses[1:], None), strict=True):
            if use.writes:
                if use.reads and slot:
                    self._before(use.step, *self._compare(tensor.buffer, slot))
                is_needed = tensor.is_output if later is None else later.reads
                slot = self._sum_of_result(tensor.buffer, use) if is_needed else 0
            elif slot and (not tensor.is_output if later is None else later.writes):
                self._after(use.step, *self._compare(tensor.buffer, slot))
                slot = 0
        if slot and tensor.is_output:
            self.checks.at_end.extend(self._compare(tensor.buffer, slot))

    def _sum_of_result(self, buffer: tir.Buffer, use: _Use) -> int:
        """Return the slot of the sum of a result, which its kernel adds if it can."""
        slot = self._new_slot()
        step = self.steps[use.step]
        if isinstance(step, tir.PrimFuncCall) and use.is_whole:
            kernel = self.module.kernel(step.callee)
            summing = None
            if self.calls[step.callee] == 1:
                summing = self._with_products(use.step, step) or with_store_sum(kernel)
            if summing is not None:
                self.checks.kernels[kernel.name] = summing
                self.checks.slot_of_step[use.step] = slot
                return slot
        self._after(use.step, self._sum(buffer, slot, slot))
        return slot

    def _with_products(self, index: int, step: tir.PrimFuncCall) -> tir.PrimFunc | None:
        """Return the kernel with the sum of its products, which is compared after it.

        That sum is in the slot after that of the kernel's other sum.
        """
        kernel = self.module.kernel(step.callee)
        if PRODUCTS not in kernel.attrs:
            return None
        summing = with_store_sum(kernel, adds_products=True)
        if summing is None:
            return None
        columns = find_column_sums(self.module, summing, self.intrinsics)
        if columns is None:
            return None
        expected, constant = product_sum_kernel(kernel, columns)
        self.checks.kernels[expected.name] = expected
        self.checks.constants[constant.name] = constant
        (x,) = (
            a for a, p in zip(step.args, kernel.params, strict=True) if p.role == "in"
        )
        call = tir.PrimFuncCall(expected.name, (x, self._pointer(_FOUND, "w")))
        self._after(index, call, self._require(self._load(self._new_slot())))
        self.weights_in_products |= largest_constants(self.module, kernel)
        return summing

    # ---- constants -------------------------------------------------------------------

    def _check_constants(self) -> Iterator[tir.Stmt]:
        names: dict[str, None] = dict.fromkeys(used_constants(self.main.body))
        for callee in self.calls:
            names |= dict.fromkeys(used_constants(self.module.kernel(callee).body))
        for kernel in tuple(self.checks.kernels.values()):
            names |= dict.fromkeys(used_constants(kernel.body))
        for name in self._left_to_products():
            del names[name]
        constants = {**self.module.constants, **self.checks.constants}
        for index, name in enumerate(names):
            constant = constants[name]
            kernel = _constant_sum_kernel(index, constant, self.target)
            self.checks.kernels[kernel.name] = kernel
            args = tir.IntImm(0, UINT32), self._pointer(_FOUND, "w")
            yield tir.PrimFuncCall(kernel.name, args)
            expected = int(np.frombuffer(constant.data, np.uint8).sum(dtype=np.uint32))
            yield self._require(tir.IntImm(expected, UINT32))

    def _left_to_products(self) -> set[str]:
        """Return the weights that only sums of products check, because of the time."""
        size_bytes = macs = 0
        for name in self.weights_in_products:
            size_bytes += self.module.constants[name].size_bytes
        for callee in self.calls:
            count = self.module.kernel(callee).attrs.get("macs", 0)
            macs += count if isinstance(count, int) else 0
        is_slow = size_bytes * 100 > macs * _SUMMED_PERCENT_MAX
        return self.weights_in_products if is_slow else set()

    # ---- statements ------------------------------------------------------------------

    def _before(self, step: int, *stmts: tir.Stmt) -> None:
        self.checks.before.setdefault(step, []).extend(stmts)

    def _after(self, step: int, *stmts: tir.Stmt) -> None:
        self.checks.after.setdefault(step, []).extend(stmts)

    def _new_slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def _pointer(
        self, slot: int, access: tir.AccessMode, count: int = 1
    ) -> tir.AccessPtr:
        return tir.AccessPtr(self.sums, tir.IntImm(slot, INDEX), count, access)

    def _load(self, slot: int) -> tir.Expr:
        return tir.BufferLoad(self.sums, (tir.IntImm(slot, INDEX),))

    def _sum(self, buffer: tir.Buffer, tag: int, slot: int) -> tir.Stmt:
        kernel = _sum_kernel(buffer, self.target)
        self.checks.kernels[kernel.name] = kernel
        number = tir.IntImm(tag, UINT32)
        args = whole_buffer(buffer, "r"), number, self._pointer(slot, "w")
        return tir.PrimFuncCall(kernel.name, args)

    def _compare(self, buffer: tir.Buffer, slot: int) -> tuple[tir.Stmt, tir.Stmt]:
        return self._sum(buffer, slot, _FOUND), self._require(self._load(slot))

    def _require(self, expected: tir.Expr) -> tir.Stmt:
        args = self._load(_FOUND), expected
        return tir.Evaluate(tir.IntrinsicCall(REQUIRE_EQUAL.name, args, HANDLE))

    def _with_checks(self) -> tir.PrimFunc:
        all_sums = replace(self.sums, shape=(self.slots,))
        clear = _clearing_kernel(self.slots, self.target)
        self.checks.kernels[clear.name] = clear
        position = iter(range(len(self.steps)))

        def change(step: tir.Stmt) -> tir.Stmt:
            index = next(position)
            slot = self.checks.slot_of_step.get(index)
            if slot is not None and isinstance(step, tir.PrimFuncCall):
                sums = self.checks.kernels[step.callee].params[-1].value
                assert isinstance(sums, tir.Buffer)
                result = self._pointer(slot, "w", sums.elements)
                added = tir.IntImm(slot, UINT32), result
                step = replace(step, args=(*step.args, *added))
            before = list(self.checks.before.get(index, ()))
            if index == 0:
                cleared = (whole_buffer(all_sums, "w"),)
                before.insert(0, tir.PrimFuncCall(clear.name, cleared))
            return make_sequence([*before, step, *self.checks.after.get(index, ())])

        body = substitute(
            map_steps(self.main.body, change), {}, {self.sums.name: all_sums}
        )
        return replace(self.main, body=tir.Allocate(all_sums, body, "scratch"))


# ---- kernels -------------------------------------------------------------------------


def _sum_kernel(buffer: tir.Buffer, target: str) -> tir.PrimFunc:
    """Build the kernel `sum = tag + bytes of x` for tensors like `buffer`."""
    alignment = min(buffer.alignment, _WORD_BYTES)
    b = Builder(f"sum_{buffer.elements}_{buffer.dtype.name}_{alignment}")
    x = b.buffer_param("x", buffer.dtype, (buffer.elements,), "in", alignment)
    return _build_sum(b, x, target)


def _constant_sum_kernel(index: int, constant: Constant, target: str) -> tir.PrimFunc:
    b = Builder(f"sum_constant_{index}")
    x = tir.Buffer(
        b.unique("x"), constant.dtype, constant.shape, None, "const", _WORD_BYTES
    )
    kernel = _build_sum(b, x, target)
    return replace(kernel, body=tir.AllocateConst(x, constant.name, kernel.body))


def _build_sum(b: Builder, x: tir.Buffer, target: str) -> tir.PrimFunc:
    tag = tir.Var(b.unique("tag"), UINT32)
    b.params.append(tir.Param(tag, "scalar"))
    result = b.buffer_param("sum", UINT32, (1,), "out", 4)
    total = b.register("total", UINT32, tag)
    words = x.size_bytes // _WORD_BYTES if x.alignment % _WORD_BYTES == 0 else 0
    blocks = words // BLOCK_WORDS
    rest = x.size_bytes - words * _WORD_BYTES
    for name, item, dtype, first, count in (
        ("blocks", ADD_MEMORY_8_WORDS, UINT32, 0, blocks),
        ("words", ADD_MEMORY_WORD, UINT32, blocks * BLOCK_WORDS, words % BLOCK_WORDS),
        ("bytes", ADD_MEMORY_BYTE, UINT8, words * _WORD_BYTES, rest),
    ):
        if not count:
            continue
        extent = item.operands[1].extent
        place = first * dtype.size_bytes // x.dtype.size_bytes
        view = b.view(
            name, x, place, [count * extent], dtype=dtype, alignment=dtype.size_bytes
        )
        with b.for_("i", count) as i:
            pointer = b.pointer(view, i * extent, extent)
            args = (total.value, pointer)
            total.set(call_intrinsic(item.name, args, UINT32))
    b.store(result, [0], total.value)
    return b.build(comment=f"Add up {x.size_bytes} bytes.", target=target)


def _clearing_kernel(slots: int, target: str) -> tir.PrimFunc:
    b = Builder("clear_sums")
    sums = b.buffer_param("sums", UINT32, (slots,), "out", 4)
    with b.for_("i", slots) as i:
        b.store(sums, [i], 0)
    return b.build(comment="Clear the sums of the last run.", target=target)
