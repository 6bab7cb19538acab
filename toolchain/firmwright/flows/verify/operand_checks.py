"""Firmware of this computer in which operators may access only their operands.

AddressSanitizer checks the accesses of all C, also of a backend's own: a header of
probes makes the pools inaccessible except for the operands of the operator that runs.
Constants are arrays of their own, between which the compiler puts inaccessible memory.
UndefinedBehaviorSanitizer checks alignment, overflow, shifts and indices.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Final

from firmwright.artifacts import Image
from firmwright.base.c_identifiers import to_c_identifier
from firmwright.base.child_process import find_program
from firmwright.base.templates import render_template
from firmwright.boards import Compiler
from firmwright.build import build_project
from firmwright.codegen.c_names import ModelNames
from firmwright.codegen.emit_options import DEFAULT_EMIT_OPTIONS
from firmwright.codegen.model_interface import PlacedBuffer, find_placed_buffers
from firmwright.flows.board.build_cache import object_folder
from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.tir.traversal import prim_calls, statements
from firmwright.package.project_writer import write_project
from firmwright.pipeline import Compilation

COMPILER: Final = "gcc"
_CHECKS = "alignment,bounds,integer-divide-by-zero,shift-exponent"
CHECK_FLAGS = (
    f"-fsanitize=address,{_CHECKS},signed-integer-overflow",
    "-fsanitize-recover=all",
    "-fsanitize-sections=.rodata.flash",
    "-fno-omit-frame-pointer",
    "-g",
)
_LOG = "operand_checks.log"
_OPERATOR = re.compile(r"operator (-?\d+)")
_ADDRESS_ERROR = re.compile(r".*ERROR: AddressSanitizer: (\S+).*")
_ACCESS = re.compile(r"(READ|WRITE) of size (\d+) .*")
_FRAME = re.compile(r" +#\d+ 0x[0-9a-f]+ in (\w+) (\S+?)(:\d+)?(:\d+)?")
_STACK_LINES = 20
_UNDEFINED = re.compile(r"(\S+?):(\d+):\d+: runtime error: (.*)")


@dataclass(frozen=True, slots=True)
class OperandFault:
    """A wrong access or undefined operation in the C that an operator runs.

    `problem` describes it, `place` has the function or file and line. `functions` are
    those of the stack, the innermost first.
    """

    operator: int
    functions: tuple[str, ...]
    problem: str
    place: str
    is_access: bool


def can_check_operands() -> bool:
    """Return whether this computer has the compiler with both sanitizers."""
    return sys.platform == "linux" and find_program(COMPILER) is not None


def build_checked_image(compiled: Compilation, folder: Path) -> Image:
    """Build firmware of this computer that logs wrong accesses in `folder`."""
    header = format_operand_checks(compiled.module, compiled.c_prefix, folder / _LOG)
    return build_with_probes(compiled, folder, header, CHECK_FLAGS, COMPILER)


def build_with_probes(
    compiled: Compilation,
    folder: Path,
    header: str,
    flags: Sequence[str],
    compiler: Compiler | None = None,
) -> Image:
    """Build firmware in `folder` with the text of a header of probes and more flags."""
    name = compiled.c_prefix
    write_project(compiled.project(), folder)
    file = folder / "model" / f"{name}_operands.h"
    file.write_text(header, encoding="utf-8", newline="\n")
    macro = f'-D{name.upper()}_PROBE_HEADER=\\"{file.name}\\"'
    return build_project(
        folder,
        compiler=compiler,
        objects=object_folder(),
        is_own=True,
        allow_stack=True,
        extra_flags=(*flags, macro),
    )


def format_operand_checks(
    module: IRModule, prefix: str = "", log: Path | None = None
) -> str:
    """Return the header of probes that confine each operator to its operands.

    A device executes calls while others run, so each may access all buffers, and the
    bytes between them stay inaccessible. The sanitizer works on groups of eight bytes,
    so accesses up to seven bytes before a buffer may go unnoticed. With `log`, errors
    are appended there and the run goes on.
    """
    main = module.aot_main
    name = to_c_identifier(prefix or module.name)
    pools = [param.name for param in main.params if param.role == "pool"]
    rows: set[tuple[int, int, int, int]] = set()
    for operator, places in operand_places(main).items():
        for place in places:
            pool = pools.index(place.pool)
            rows.add((operator, pool, place.offset, place.buffer.size_bytes))
    return render_template(
        "firmwright.build",
        "operand_checks.h.j2",
        name=name,
        NAME=name.upper(),
        spdx=DEFAULT_EMIT_OPTIONS.spdx,
        pools=[(pool, ModelNames(name).macro(pool)) for pool in pools],
        rows=sorted(rows),
        log="" if log is None else json.dumps(str(log)),
        has_devices=has_devices(main),
    )


def has_devices(main: tir.PrimFunc) -> bool:
    """Return whether other devices execute calls while the core goes on."""
    return any(call.device for call in prim_calls(main.body))


def operand_places(main: tir.PrimFunc) -> Mapping[int, Sequence[PlacedBuffer]]:
    """Return the buffers in pools that each operator may access, by its index.

    With devices, these are the arguments of all calls.
    """
    placed = _placed_buffers_and_views(main)
    places: dict[int, list[PlacedBuffer]] = {}
    for call in prim_calls(main.body):
        own = places.setdefault(call.op, [])
        for arg in call.args:
            if isinstance(arg, tir.AccessPtr) and arg.buffer.name in placed:
                own.append(placed[arg.buffer.name])
    if has_devices(main):
        every = list(chain.from_iterable(places.values()))
        places = dict.fromkeys(places, every)
    return {operator: own for operator, own in places.items() if operator >= 0}


def _placed_buffers_and_views(main: tir.PrimFunc) -> Mapping[str, PlacedBuffer]:
    """Return the place of each buffer; a view's is that of its buffer."""
    placed = {place.buffer.name: place for place in find_placed_buffers(main)}
    for part in statements(main.body):
        if isinstance(part, tir.DeclBuffer) and part.source.buffer.name in placed:
            placed.setdefault(part.buffer.name, placed[part.source.buffer.name])
    return placed


def read_operand_faults(folder: Path) -> list[OperandFault]:
    """Return the errors that firmware of `build_checked_image` logged in `folder`.

    Only the first error of each instruction is logged.
    """
    log = folder / _LOG
    if not log.is_file():
        return []
    return list(_faults(log.read_text(encoding="utf-8", errors="replace").splitlines()))


def _faults(lines: Sequence[str]) -> Iterator[OperandFault]:
    """Yield the errors in files of models and backends."""
    operator = -1
    for number, line in enumerate(lines):
        if started := _OPERATOR.fullmatch(line):
            operator = int(started[1])
            continue
        undefined, error = _UNDEFINED.fullmatch(line), _ADDRESS_ERROR.fullmatch(line)
        if not undefined and not error:
            continue
        following = lines[number + 1 : number + _STACK_LINES]
        frames = list(_frames(following))
        sources = [frame for frame in frames if frame[3] and _is_model(frame[2])]
        if undefined and _is_model(undefined[1]):
            place = f"{PurePosixPath(undefined[1]).name}:{undefined[2]}"
            problem = undefined[3]
        elif error and sources:
            place = (
                f"{sources[0][1]}, {PurePosixPath(sources[0][2]).name}{sources[0][3]}"
            )
            problem = f"{_access(following)} ({error[1]})"
        else:
            continue
        functions = tuple(frame[1] for frame in frames)
        is_access = error is not None
        yield OperandFault(operator, functions, problem, place, is_access)


def _frames(lines: Sequence[str]) -> Iterator[re.Match[str]]:
    """Yield the frames of the first stack in a report."""
    has_begun = False
    for line in lines:
        frame = _FRAME.fullmatch(line)
        if frame:
            yield frame
        elif has_begun:
            return
        has_begun = has_begun or frame is not None


def _is_model(path: str) -> bool:
    """Return whether a source file is of a model or backend, not of the runtime."""
    return not {"backend", "model"}.isdisjoint(PurePosixPath(path).parts)


def _access(lines: Sequence[str]) -> str:
    for line in lines:
        if access := _ACCESS.fullmatch(line):
            return f"{access[1].lower()} of {access[2]} bytes"
    return "access"
