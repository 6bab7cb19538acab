"""Attributes the counted instructions of a run to the operators of a model.

The counts come by instruction and by the site of the call in the main that ran it. The
compiler may have merged, duplicated or moved kernels and their calls.
"""

import bisect
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from firmwright.artifacts import Image, SymbolSize
from firmwright.base.errors import InternalError, UsageError
from firmwright.build.disassembler import source_lines
from firmwright.codegen.function_printer import without_calls, without_constant_copies
from firmwright.device.instruction_counter import InstructionCount
from firmwright.flows.predict.cost_prediction import count_kernel_calls, depends_on_data
from firmwright.ir import tir
from firmwright.ir.tir.traversal import prim_calls, walk
from firmwright.pipeline import Compilation
from firmwright.targets.disassembly import Instruction

NO_OPERATOR = -1
"""The index of calls that belong to no operator: moved rows within a fused segment."""


class SharedKernelError(UsageError):
    """The image's calls cannot be attributed to single operators."""


class CodeIndex:
    """The instructions and functions of an image by address."""

    def __init__(self, image: Image, instructions: Mapping[int, Instruction]) -> None:
        self._instructions = instructions
        # Bit 0 of a function's address marks Thumb code.
        texts = (symbol for symbol in image.sizes.symbols if symbol.kind == "text")
        self._functions = sorted(texts, key=self.start)
        self._starts = [self.start(symbol) for symbol in self._functions]

    @staticmethod
    def start(symbol: SymbolSize) -> int:
        return symbol.address & ~1

    def function(self, name: str) -> SymbolSize:
        for symbol in self._functions:
            if symbol.name == name:
                return symbol
        raise InternalError(f"the image has no function {name}.")

    def at(self, address: int) -> Instruction:
        if address not in self._instructions:
            raise InternalError(f"code ran at 0x{address:08x}, outside the image.")
        return self._instructions[address]

    def name_at(self, address: int) -> str:
        index = bisect.bisect_right(self._starts, address) - 1
        if index >= 0:
            function = self._functions[index]
            if address - self._starts[index] < function.size_bytes:
                return function.name
        return f"0x{address:08x}"


def group_by_operator(
    compiled: Compilation,
    code: CodeIndex,
    times: Mapping[int, int],
    sites: Mapping[int, list[InstructionCount]],
    commented: Mapping[int, int],
) -> dict[int, list[InstructionCount]]:
    """Group the counts by operator; `sites` are in order of their first execution.

    Compilers may duplicate the calls of a kernel, and merge equal kernels. Calls that
    operators share are assigned by `commented`, the operators of source lines, and else
    in order until each operator has its number of executions (`times`). The code that
    starts and awaits calls of other devices belongs to no operator.
    """
    main = compiled.module.aot_main
    body = without_constant_copies(compiled.module, main.body)
    body = without_calls(body, lambda call: bool(call.device))
    calls = straight_calls(body)
    if len(calls) == len(sites) and all(times[site] == 1 for site in sites):
        # In order, regardless of names: compilers merge equal functions.
        cells_by_op = {op: list[InstructionCount]() for op in sorted(set(calls))}
        for op, cells in zip(calls, sites.values(), strict=True):
            cells_by_op[op] += cells
        return cells_by_op
    waiting = _waiting_calls(compiled, body)
    cells_by_op = {call.op: [] for call in prim_calls(main.body)}
    moving = _moving_functions(waiting)
    has_devices = any(call.device for call in prim_calls(main.body))
    is_open = any(map(depends_on_data, walk(body)))
    members = {name: len(group) for name, group in waiting.items()}
    shared = ""
    for site, cells in sites.items():
        # A compiler's copy of a function has a suffix; a linker's veneer may precede
        # it.
        names = [code.name_at(cell.address).partition(".")[0] for cell in cells]
        known = [name for name in names if name in waiting]
        name = known[0] if known else names[0]
        if (name not in waiting and has_devices) or name in moving:
            cells_by_op.setdefault(NO_OPERATOR, []).extend(cells)
            continue
        _put_first(waiting, name, commented.get(site))
        op, left = waiting[name][0] if waiting.get(name) else (NO_OPERATOR, 0)
        if times[site] > left and not (is_open and left):
            shared = name
            break
        waiting[name][0] = op, left - times[site]
        if left <= times[site]:
            waiting[name].pop(0)
        cells_by_op[op] += cells
    if is_open and not commented and not shared:
        shared = _unclear_kernel(waiting, members)
    if shared:
        what = (
            f"operators share the kernel {shared}, so its calls cannot be attributed."
        )
        hint = "use profile without --count-instructions."
        raise SharedKernelError(what, where=compiled.module.name, hint=hint)
    return dict(sorted(cells_by_op.items()))


def _put_first(
    waiting: dict[str, list[tuple[int, int]]], name: str, commented: int | None
) -> None:
    """Make `commented` the first operator that waits for the function `name`.

    If it waits for another one, the compiler has made one function of equal kernels.
    """
    if commented is None or name not in waiting:
        return
    if not any(op == commented for op, _ in waiting[name]):
        for group in waiting.values():
            merged = [each for each in group if each[0] == commented]
            group[:] = [each for each in group if each[0] != commented]
            waiting[name] += merged
    waiting[name].sort(key=lambda each: each[0] != commented)


def _unclear_kernel(
    waiting: Mapping[str, Sequence[tuple[int, int]]], members: Mapping[str, int]
) -> str:
    """Return the first kernel of which some operators ran, but not which; else ""."""
    for name, group in waiting.items():
        if 0 < len(group) < members[name]:
            return name
    return ""


def _waiting_calls(
    compiled: Compilation, body: tir.Stmt
) -> dict[str, list[tuple[int, int]]]:
    """Return the operators and executions that each C function of a kernel serves."""
    waiting: dict[str, list[tuple[int, int]]] = {}
    for call, count in count_kernel_calls(body).items():
        kernel = compiled.module.functions[call.callee]
        served = kernel.code if isinstance(kernel, tir.PrimFunc) else call.callee
        function = f"{compiled.c_prefix}_{served}"
        waiting.setdefault(function, []).append((call.op, count))
    return waiting


def _moving_functions(waiting: Mapping[str, Sequence[tuple[int, int]]]) -> set[str]:
    """Return functions that only move rows within a segment, for no operator."""
    moving: set[str] = set()
    for name, group in waiting.items():
        if all(op == NO_OPERATOR for op, _ in group):
            moving.add(name)
    return moving


def commented_operators(
    compiled: Compilation, image: Image, sites: Sequence[int]
) -> Mapping[int, int]:
    """Return each site's operator: the number in the last comment above its line."""
    texts = {Path(path).name: str(text) for path, text in compiled.tree.files.items()}
    operators = dict[int, int]()
    places = source_lines(compiled.board, image.elf, sites)
    for site, (file, number) in zip(sites, places, strict=True):
        above = "\n".join(texts.get(file, "").splitlines()[:number])
        numbers = re.findall(r"^ +/\* (\d+): ", above, re.MULTILINE)
        if numbers:
            operators[site] = int(numbers[-1])
    return operators


def straight_calls(body: tir.Stmt) -> list[int]:
    """Return the operators of a main without control flow, in order, else []."""
    nodes = list(walk(body))
    if any(isinstance(node, tir.For | tir.If | tir.While) for node in nodes):
        return []
    return [node.op for node in nodes if isinstance(node, tir.PrimFuncCall)]
