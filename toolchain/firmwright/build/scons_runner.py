"""Runs SCons in a project folder; the image is linked again if its stack is fitted."""

import contextlib
import hashlib
import json
import logging
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from firmwright.artifacts import Image, StackUsage, Variant
from firmwright.base.cache_folder import cache_root
from firmwright.base.child_process import Word, python_command, run_program
from firmwright.base.errors import ToolFailedError
from firmwright.base.json_input import (
    JsonObject,
    as_integer,
    as_objects,
    as_text,
    as_texts,
    parse_json,
)
from firmwright.base.rounding import round_up
from firmwright.boards import Compiler
from firmwright.build import image_sizes
from firmwright.build.board_facts import read_board_facts
from firmwright.build.build_failures import explain_failure
from firmwright.build.compiler_selection import choose_compiler, require_compiler
from firmwright.build.image_sizes import LinkedRegion, read_sizes
from firmwright.build.project_trust import OWN_SCRIPT, find_build_script
from firmwright.build.stack_analysis import CallGraph, read_known_functions
from firmwright.build.stack_check import check_stack
from firmwright.build.zig_toolchain import zig_command

log = logging.getLogger(__name__)
BUILD_TIMEOUT_S = 900.0
_ROOTS = {
    "cortex_m": "fwr_reset_handler",
    "cortex_r": "fwr_reset",
    "riscv32": "fwr_reset",
    "xtensa": "fwr_reset",
    "host": "main",
}
"""The first function with a stack, by port."""
_FAULT_ROOT = "fwr_fault_report"
_MODEL_ENTRIES = ("run", "feed_row", "finish")
"""The model functions that firmware calls; the last two are for row-streamed inputs."""
_COUNTER_ROOT = "fwr_systick_isr"
CUSTOM_MAIN_MARK = "firmware/fwr_stop.c"
"""The file of projects whose main program is the user's."""
_STACK_ALIGN = 16
_ZIG_CORE_FLAGS = 3
"""The first flags of Zig, which select a core: -target TARGET -mcpu=CORE."""


@dataclass(frozen=True, slots=True)
class _ProjectBuild:
    """One build of a project, by `script`, with SCons's records in `signatures`."""

    directory: Path
    variant: Variant
    compiler: Compiler
    objects: Path | None
    script: Path
    signatures: Path | None
    board: str
    regions: tuple[LinkedRegion, ...]
    root: str
    port: str
    toolchain: str
    exception_frame_bytes: int
    counter_interrupts: bool
    fit_stack: bool
    stack_bytes: int
    zig_flags: tuple[str, ...]
    extra_flags: tuple[str, ...]

    @property
    def elf(self) -> Path:
        return self.directory / "build" / self.variant / "firmware.elf"

    def tool(self, name: str) -> str:
        return f"{self.toolchain}-{name}" if self.toolchain else name


def build_project(
    directory: Path,
    variant: Variant = "release",
    *,
    compiler: Compiler | None = None,
    objects: Path | None = None,
    is_own: bool = False,
    allow_stack: bool = False,
    extra_flags: Sequence[str] = (),
) -> Image:
    """Build a variant, and the empty firmware to compare with.

    `objects` is a cache of object files, `extra_flags` are for compiler and linker.

    The content of the folder is checked, unless this process has written all of it
    (`is_own`).

    Raises:
        UsageError: a part of the folder requires trust, or its board.json is damaged.
        DoesNotFitError: memory is short; or the stack, unless `allow_stack` accepts
            any.
    """
    directory = directory.resolve()
    facts = read_board_facts(directory)
    script = OWN_SCRIPT if is_own else find_build_script(directory)
    signatures = None if is_own else _signature_file(directory)
    port = as_text(facts["port"])
    build = _ProjectBuild(
        directory=directory,
        variant=variant,
        compiler=choose_compiler(compiler, default=as_text(facts["compiler"])),
        objects=objects,
        script=script,
        signatures=signatures,
        board=as_text(facts["name"]),
        regions=tuple(map(_linked_region, as_objects(facts["memory"]))),
        root=_ROOTS[port],
        port=port,
        toolchain=as_text(facts["toolchain"]),
        exception_frame_bytes=as_integer(facts["exception_frame_bytes"]),
        counter_interrupts=facts["counter_interrupts"] is True,
        fit_stack=facts["fit_stack"] is True,
        stack_bytes=as_integer(facts["stack_bytes"]),
        zig_flags=tuple(as_texts(facts.get("zig_flags", []))),
        extra_flags=tuple(extra_flags),
    )
    require_compiler(
        build.compiler,
        build.toolchain,
        board=build.board,
        has_zig_flags=bool(build.zig_flags),
    )
    _link(build)
    image = _built_image(build)
    if not allow_stack:
        check_stack(image)
    return image


def _linked_region(region: JsonObject) -> LinkedRegion:
    return LinkedRegion(
        name=as_text(region["name"]),
        start=as_integer(region["start"]),
        size_bytes=as_integer(region["size_bytes"]),
        kind=as_text(region["kind"]),
    )


def _built_image(build: _ProjectBuild) -> Image:
    """Return the linked image; the model's sizes are beyond the empty firmware."""
    elf = build.elf
    sizes = read_sizes(elf, build.regions)
    empty_elf = build.directory / "build" / "empty" / "firmware.elf"
    empty = read_sizes(empty_elf, build.regions)
    stack, firmware_stack = _stack_use(build)
    has_library = build.port == "host" and build.variant == "release"
    others = {file.suffix: file for file in elf.parent.glob("firmware.*")}
    return Image(
        board=build.board,
        variant=build.variant,
        directory=build.directory,
        elf=elf,
        bin=others.get(".bin"),
        hex=others.get(".hex"),
        library=elf.with_name("libmodel.so") if has_library else None,
        sizes=sizes,
        model_flash_bytes=sizes.flash_bytes - empty.flash_bytes,
        model_ram_bytes=sizes.ram_bytes - empty.ram_bytes,
        stack=stack,
        firmware_stack=firmware_stack,
    )


def read_project_board(directory: Path) -> str:
    return as_text(read_board_facts(directory)["name"])


def _signature_file(directory: Path) -> Path:
    """Return SCons's record of builds, a pickle that must not be in the folder."""
    name = hashlib.sha256(str(directory).encode(errors="surrogateescape")).hexdigest()[
        :24
    ]
    file = cache_root() / "objects" / "signatures" / name
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return file


def _link(build: _ProjectBuild) -> None:
    """Build the variant and the empty firmware; raise an error with the cause."""
    command = _scons_command(build)
    with _first_use_of_zig(build):
        status, output = _run(build, command)
    fits = build.fit_stack and build.compiler != "zig"
    if fits and _fit_stack(build, status, output):
        status, output = _run(build, command)
    if status == 0:
        return
    overflows = image_sizes.find_overflows(output, build.regions)
    if overflows:
        elf = _link_anyway(build)
        sizes = read_sizes(elf, build.regions) if elf else None
        raise image_sizes.make_does_not_fit_error(
            overflows, sizes, build.regions, board=build.board
        )
    cause = explain_failure(build.directory, output)
    raise ToolFailedError(
        cause.what,
        command=command,
        exit_status=status,
        output="\n".join(_messages(build, output)),
        where=str(build.directory),
        hint=cause.hint,
    )


@contextlib.contextmanager
def _first_use_of_zig(build: _ProjectBuild) -> Iterator[None]:
    """Say what the first build with Zig for a core waits for; a file marks the end."""
    if build.compiler != "zig":
        yield
        return
    core = " ".join(build.zig_flags[:_ZIG_CORE_FLAGS])
    mark = cache_root() / "zig" / hashlib.sha256(core.encode()).hexdigest()[:16]
    if not mark.exists():
        log.info(
            "building for %s: the first time, Zig compiles its C library for this "
            "core, which takes minutes",
            build.board,
        )
    yield
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()


def _scons_command(build: _ProjectBuild, *more: str) -> tuple[Word, ...]:
    """Return the command that runs the script and no other Python code.

    Neither code of the folder nor of the user is run.
    """
    scons = python_command("SCons", "-Q", "--no-site-dir", "-f", build.script)
    options = [
        "--cache-show",
        f"-j{os.cpu_count() or 1}",
        f"compiler={build.compiler}",
        f"extra={' '.join(build.extra_flags)}",
        *more,
    ]
    return (*scons, *options, build.variant, "empty")


def _fit_stack(build: _ProjectBuild, status: int, output: str) -> bool:
    """Set the stack reserve to the worst stack use; return whether it changed."""
    elf: Path | None = build.elf
    if status != 0:
        overflows = image_sizes.find_overflows(output, build.regions)
        elf = _link_anyway(build) if overflows else None
    if elf is None:
        return False
    size_bytes = _stack_reserve_bytes(build, _call_graph(build, elf))
    file = build.directory / "build" / "stack.json"
    earlier = _read_reserves(file)
    fitted = {**earlier, build.variant: size_bytes, "empty": size_bytes}
    if fitted == earlier:
        return False
    text = json.dumps(fitted, indent=2, sort_keys=True) + "\n"
    file.write_text(text, encoding="utf-8", newline="\n")
    return True


def _read_reserves(file: Path) -> JsonObject:
    """Return the stack reserves of earlier builds by variant, if there are any."""
    if not file.is_file():
        return {}
    reserves = parse_json(file.read_text(encoding="utf-8"))
    return reserves if isinstance(reserves, Mapping) else {}


def _stack_reserve_bytes(build: _ProjectBuild, graph: CallGraph) -> int:
    """Return the reserve for the worst path, an exception, and a fault report.

    The fault report has half of the reserve.

    If the worst path is not known, the reserve is at least that of the board.
    """
    _, worst = _stacks(build, graph)
    fault = graph.worst(build.root).size_bytes + build.exception_frame_bytes
    report = 2 * graph.worst(_FAULT_ROOT).size_bytes
    size_bytes = max(worst.size_bytes, fault, report)
    if worst.unknown or worst.unbounded:
        size_bytes = max(size_bytes, build.stack_bytes)
    return round_up(size_bytes, _STACK_ALIGN)


def _messages(build: _ProjectBuild, output: str) -> list[str]:
    """Return the lines of the output that are not the commands that SCons ran."""
    commands = [build.tool("gcc") + " ", build.tool("objcopy") + " ", "clang ", "zig "]
    commands += [shlex.quote(str(word)) for word in zig_command()[:1]]
    starts = tuple(commands)
    return [line for line in output.splitlines() if not line.startswith(starts)]


def _link_anyway(build: _ProjectBuild) -> Path | None:
    """Link an overfull image without the size check, to list its contents."""
    if build.compiler == "zig":
        return None
    _run(build, _scons_command(build, "link=-Wl,--noinhibit-exec"))
    if not build.elf.is_file():
        return None
    elf = build.elf.replace(build.directory / "build" / "does_not_fit.elf")
    for file in build.elf.parent.glob("firmware.*"):
        file.unlink()
    return elf


def _run(build: _ProjectBuild, command: Sequence[Word]) -> tuple[int, str]:
    """Run a program in the folder, from which Python imports nothing."""
    environment = {"LC_ALL": "C", "PYTHONSAFEPATH": "1"}
    if build.objects is not None:
        environment["FIRMWRIGHT_OBJECTS"] = str(build.objects)
    if build.signatures is not None:
        environment["FIRMWRIGHT_SIGNATURES"] = str(build.signatures)
    return run_program(
        command,
        "the build",
        timeout_s=BUILD_TIMEOUT_S,
        where=str(build.directory),
        folder=build.directory,
        environment=environment,
    )


def _stack_use(build: _ProjectBuild) -> tuple[StackUsage, StackUsage]:
    """Return the worst stack use of models and firmware, unknown with zig."""
    if build.compiler == "zig":
        firmware = StackUsage(build.root, 0, (), (build.root,))
        return StackUsage("", 0, (), ("",)), firmware
    return _stacks(build, _call_graph(build, build.elf))


def _call_graph(build: _ProjectBuild, elf: Path) -> CallGraph:
    command: list[Word] = [build.tool("objdump"), "-d", elf]
    status, disassembly = _run(build, command)
    if status != 0:
        what = "the firmware could not be disassembled."
        raise ToolFailedError(
            what, command=command, exit_status=status, output=disassembly
        )
    is_custom = (build.directory / CUSTOM_MAIN_MARK).is_file()
    known = read_known_functions(build.elf.parent, is_custom=is_custom)
    return CallGraph(disassembly, known)


def _stacks(build: _ProjectBuild, graph: CallGraph) -> tuple[StackUsage, StackUsage]:
    """Return the worst stack use of the models' entry points and of the firmware."""
    models = [file.stem for file in sorted((build.directory / "model").glob("*.c"))]
    entries = [f"{model}_{entry}" for model in models for entry in _MODEL_ENTRIES]
    stacks = [graph.worst(entry) for entry in entries if graph.has(entry)]
    stack = max(stacks, key=lambda s: s.size_bytes, default=StackUsage("", 0, ()))
    return stack, _with_interrupt(build, graph, graph.worst(build.root))


def _with_interrupt(
    build: _ProjectBuild, graph: CallGraph, use: StackUsage
) -> StackUsage:
    """Add the cycle counter's interrupt, which may occur at the deepest point."""
    if not build.counter_interrupts or not graph.has(_COUNTER_ROOT):
        return use
    extra = build.exception_frame_bytes + graph.worst(_COUNTER_ROOT).size_bytes
    path = (*use.path, _COUNTER_ROOT)
    return replace(use, size_bytes=use.size_bytes + extra, path=path)
