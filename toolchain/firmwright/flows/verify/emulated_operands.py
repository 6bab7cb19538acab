"""Firmware in QEMU in which operators may access only their operands.

A plugin of QEMU watches all accesses to pools and constants. A header of probes tells
it which operator runs, the image where pools and constants are.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from firmwright.artifacts import Image
from firmwright.base.cache_folder import cache_root
from firmwright.base.errors import DeviceError, ToolMissingError
from firmwright.base.templates import render_template
from firmwright.boards import Board
from firmwright.codegen.c_names import ModelNames
from firmwright.codegen.constant_arrays import collect_linked_constants
from firmwright.codegen.emit_options import DEFAULT_EMIT_OPTIONS
from firmwright.codegen.function_printer import reachable_kernels
from firmwright.device.emulator_plugins import (
    build_emulator_plugin,
    check_plugin_support,
)
from firmwright.device.operand_watch import MemoryRange, OperandWatch, WrongAccess
from firmwright.flows.board.model_session import SessionOpener
from firmwright.flows.measure.call_attribution import CodeIndex
from firmwright.flows.samples.sample_batches import Tensors
from firmwright.flows.verify.guard_bytes import GuardedFirmware
from firmwright.flows.verify.operand_checks import (
    OperandFault,
    build_with_probes,
    has_devices,
    operand_places,
)
from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.tir.traversal import prim_calls, statements
from firmwright.passes.tir.externalize_constants import linked_constants
from firmwright.pipeline import Compilation

_NO_INLINING = "-fno-inline"
"""Each operator's accesses stay in its functions, between its marks."""


@dataclass(frozen=True, slots=True, order=True)
class NamedRange:
    """The place of a buffer or constant of the module in the target's memory."""

    place: MemoryRange
    name: str

    @property
    def end(self) -> int:
        return self.place.start + self.place.size_bytes

    def distance(self, address: int) -> int:
        """Return the bytes between the range and an address; 0 within the range."""
        return max(self.place.start - address, address - self.end + 1, 0)


@dataclass(frozen=True, slots=True)
class OperandMemory:
    """Where an image has pools and constants, the `areas`, and each one's operands.

    A store at `marks` plus an operator's index starts the operator.
    """

    marks: int
    areas: tuple[MemoryRange, ...]
    operands: tuple[tuple[NamedRange, ...], ...]


def can_watch_operands(board: Board) -> bool:
    """Return whether the board has an emulator that loads the plugin."""
    if board.run.kind != "qemu":
        return False
    try:
        check_plugin_support(board.run.program)
        _build_plugin()
    except ToolMissingError:
        return False
    return True


def _build_plugin() -> Path:
    return build_emulator_plugin("operands", cache_root() / "plugins")


def run_watched(
    guarded: GuardedFirmware, inputs: Sequence[Tensors], open_with: SessionOpener
) -> tuple[Sequence[Tensors], Sequence[OperandFault]]:
    """Return the outputs, none after a crash, and the wrong accesses of operators."""
    compiled = guarded.compiled
    outputs: Sequence[Tensors] = ()
    with tempfile.TemporaryDirectory(prefix="firmwright-kit-") as folder:
        image = _build_marked_image(compiled, Path(folder))
        memory = _find_operands(guarded, image)
        places: list[list[MemoryRange]] = []
        for own in memory.operands:
            places.append([operand.place for operand in own])
        with OperandWatch(_build_plugin(), memory.marks, memory.areas, places) as watch:
            try:
                with open_with(compiled, image=image, plugin=watch.argument) as session:
                    outputs = session.run_all(inputs)
            except DeviceError:
                if not watch.read():
                    raise
            code = CodeIndex(image, {})
            return outputs, [_fault(item, memory, code) for item in watch.read()]


def _build_marked_image(compiled: Compilation, folder: Path) -> Image:
    """Build firmware that marks the start and end of each operator."""
    name, main = compiled.c_prefix, compiled.module.aot_main
    calls = [call.op for call in prim_calls(main.body) if call.op >= 0]
    header = render_template(
        "firmwright.build",
        "operand_marks.h.j2",
        name=name,
        NAME=name.upper(),
        spdx=DEFAULT_EMIT_OPTIONS.spdx,
        operators=max(calls) + 1,
        last=calls[-1] if has_devices(main) else None,
    )
    return build_with_probes(compiled, folder, header, (_NO_INLINING,))


def _find_operands(guarded: GuardedFirmware, image: Image) -> OperandMemory:
    module, name = guarded.compiled.module, guarded.compiled.c_prefix
    main = module.aot_main
    symbols: dict[str, MemoryRange] = {}
    for symbol in image.sizes.symbols:
        if symbol.kind != "text":
            symbols[symbol.name] = MemoryRange(symbol.address, symbol.size_bytes)
    pools = {pool: symbols.get(f"pool_{pool}") for pool in guarded.buffers}
    areas = {area for area in pools.values() if area is not None}
    constants: dict[str, NamedRange] = {}
    kernels = reachable_kernels(module, main)
    linked = collect_linked_constants(module, (*kernels, main), ModelNames(name), {})
    for constant, item in linked.items():
        whole = symbols.get(item.symbol)
        if whole is not None:  # the compiler may have removed it
            areas.add(whole)
            size_bytes = guarded.constant_bytes[constant]
            own = MemoryRange(whole.start, size_bytes)
            constants[constant] = NamedRange(own, constant)
    used = _constants_of_operators(module)
    operands: dict[int, tuple[NamedRange, ...]] = {}
    for operator, places in operand_places(main).items():
        ranges = {constants[item] for item in used[operator] if item in constants}
        for place in places:
            pool = pools[place.pool]
            if pool is not None:
                start = pool.start + place.offset
                size_bytes = place.buffer.size_bytes
                own = MemoryRange(start, size_bytes)
                ranges.add(NamedRange(own, place.buffer.name))
        operands[operator] = tuple(sorted(ranges))
    every = tuple(operands.get(number, ()) for number in range(max(operands) + 1))
    marks = symbols[f"{name}_marks"].start
    return OperandMemory(marks, tuple(sorted(areas)), every)


def _constants_of_operators(module: IRModule) -> Mapping[int, Sequence[str]]:
    """Return the constants that each operator reads; with devices, those of all."""
    main = module.aot_main
    in_main: dict[str, str] = {}
    for part in statements(main.body):
        if isinstance(part, tir.AllocateConst):
            in_main[part.buffer.name] = part.constant
        elif isinstance(part, tir.DeclBuffer) and part.source.buffer.name in in_main:
            in_main[part.buffer.name] = in_main[part.source.buffer.name]
    used: dict[int, Sequence[str]] = {}
    for call in prim_calls(main.body):
        kernel = module.kernel(call.callee)
        own = [node.constant for node in linked_constants(kernel)]
        for arg in call.args:
            if isinstance(arg, tir.AccessPtr) and arg.buffer.name in in_main:
                own.append(in_main[arg.buffer.name])
        used[call.op] = (*used.get(call.op, ()), *own)
    if has_devices(main):
        return dict.fromkeys(used, tuple(chain.from_iterable(used.values())))
    return used


def _fault(access: WrongAccess, memory: OperandMemory, code: CodeIndex) -> OperandFault:
    """Describe an access by its function and the nearest operand of any operator."""
    known = sorted(set(chain.from_iterable(memory.operands)))
    nearest = min(known, key=lambda operand: operand.distance(access.address))
    distance = nearest.distance(access.address)
    side = "before" if access.address < nearest.place.start else "after"
    place = f"{_bytes(distance)} {side} {nearest.name}" if distance else nearest.name
    kind = "write" if access.is_store else "read"
    function = code.name_at(access.instruction)
    return OperandFault(
        operator=access.operator,
        functions=(function,),
        problem=f"{kind} of {_bytes(access.size_bytes)}: {place}",
        place=function,
        is_access=True,
    )


def _bytes(count: int) -> str:
    return "1 byte" if count == 1 else f"{count} bytes"
