"""Runs SCons in a project folder and returns the built image.

A missing compiler, a compile error and an overfull memory region raise distinct errors. If the
board's stack size is fitted to the image, the image is linked a second time with the worst stack
use that the first link showed.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from firmwright.artifacts import Compiler, Image, StackUsage, Variant
from firmwright.base.errors import ToolFailedError, UsageError
from firmwright.build.compiler_selection import choose_compiler, require_compiler
from firmwright.build.image_sizes import (
    LinkedRegion,
    find_overflows,
    make_does_not_fit_error,
    read_sizes,
)
from firmwright.build.stack_analysis import CallGraph, read_frames
from firmwright.build.zig_toolchain import zig_command

BUILD_TIMEOUT_S = 900.0
_ROOTS = {"cortex_m": "fwr_reset_handler", "riscv32": "fwr_reset", "host": "main"}
_FAULT_ROOT = "fwr_fault_report"
_MODEL_ENTRIES = ("run", "feed_row", "finish")
"""The model functions that firmware calls; the last two are for row-streamed inputs."""
_COUNTER_ROOT = "fwr_systick_isr"
_STACK_ALIGN = 16


@dataclass(frozen=True, slots=True)
class _ProjectFacts:
    """The fields of a project's `board.json` that a build needs."""

    directory: Path
    board: str
    port: str
    root: str
    toolchain: str
    regions: tuple[LinkedRegion, ...]
    exception_frame_bytes: int
    counter_interrupts: bool
    fit_stack: bool
    stack_bytes: int
    has_zig_flags: bool
    compiler: Compiler
    objects: Path | None

    def tool(self, name: str) -> str:
        return f"{self.toolchain}-{name}" if self.toolchain else name


def build_project(
    directory: Path,
    variant: Variant = "release",
    *,
    compiler: Compiler | None = None,
    objects: Path | None = None,
    timeout_s: float = BUILD_TIMEOUT_S,
) -> Image:
    """Build one variant of a project, and the empty firmware for the size comparison.

    `objects` is a cache folder for object files that similar builds share.
    """
    directory = directory.resolve()
    project = _read_project(directory, choose_compiler(compiler), objects)
    require_compiler(
        project.compiler,
        project.toolchain,
        board=project.board,
        has_zig_flags=project.has_zig_flags,
    )
    _link(project, variant, timeout_s)
    build = directory / "build"
    elf = build / variant / "firmware.elf"
    sizes = read_sizes(elf, project.regions)
    empty = read_sizes(build / "empty" / "firmware.elf", project.regions)
    stack, firmware_stack = _stack_use(project, variant, elf)
    host = project.port == "host"
    return Image(
        board=project.board,
        variant=variant,
        directory=directory,
        elf=elf,
        bin=_find_image_format(elf, ".bin"),
        hex=_find_image_format(elf, ".hex"),
        library=elf.with_name("libmodel.so") if host and variant == "release" else None,
        sizes=sizes,
        model_flash_bytes=sizes.flash_bytes - empty.flash_bytes,
        model_ram_bytes=sizes.ram_bytes - empty.ram_bytes,
        stack=stack,
        firmware_stack=firmware_stack,
    )


def _find_image_format(elf: Path, suffix: str) -> Path | None:
    file = elf.with_suffix(suffix)
    return file if file.is_file() else None


def read_project_board(directory: Path) -> str:
    return _read_project(directory.resolve(), "gcc", None).board


def _read_project(directory: Path, compiler: Compiler, objects: Path | None) -> _ProjectFacts:
    file = directory / "board" / "board.json"
    if not file.is_file():
        hint = "firmwright compile MODEL --board B -o DIR, then build DIR."
        raise UsageError("this is not a project folder.", where=str(directory), hint=hint)
    facts = json.loads(file.read_text(encoding="utf-8"))
    return _ProjectFacts(
        directory=directory,
        board=facts["name"],
        port=facts["port"],
        root=facts.get("root", _ROOTS[facts["port"]]),
        toolchain=facts["toolchain"],
        regions=tuple(LinkedRegion(**region) for region in facts["memory"]),
        exception_frame_bytes=facts["exception_frame_bytes"],
        counter_interrupts=facts["counter_interrupts"],
        fit_stack=facts["fit_stack"],
        stack_bytes=facts["stack_bytes"],
        has_zig_flags=bool(facts.get("zig_flags")),
        compiler=compiler,
        objects=objects,
    )


def _link(project: _ProjectFacts, variant: Variant, timeout_s: float) -> None:
    """Build the variant and the empty firmware; raise an error that explains a failure."""
    scons = [sys.executable, "-m", "SCons", "-Q", "--cache-show", f"-j{os.cpu_count() or 1}"]
    command = [*scons, f"compiler={project.compiler}", variant, "empty"]
    status, output = _run(command, project.directory, timeout_s, project.objects)
    fits = project.fit_stack and project.compiler != "zig"
    if fits and _fit_stack(project, variant, status, output, timeout_s):
        status, output = _run(command, project.directory, timeout_s, project.objects)
    if status == 0:
        return
    overflows = find_overflows(output, project.regions)
    if overflows:
        elf = _link_anyway(project, variant, output, timeout_s)
        sizes = read_sizes(elf, project.regions) if elf else None
        raise make_does_not_fit_error(overflows, sizes, project.regions, board=project.board)
    raise ToolFailedError(
        "SCons could not build the firmware.",
        command=command,
        exit_status=status,
        output="\n".join(_messages(project, output)),
        where=str(project.directory),
    )


def _fit_stack(
    project: _ProjectFacts, variant: Variant, status: int, output: str, timeout_s: float
) -> bool:
    """Set the stack reserve to the worst stack use of the image, even if the image does not fit.

    Return whether the reserve changed. The empty firmware gets the same reserve, so that the size
    of the model is compared without the stack.
    """
    elf: Path | None = project.directory / "build" / variant / "firmware.elf"
    if status != 0:
        overflows = find_overflows(output, project.regions)
        elf = _link_anyway(project, variant, output, timeout_s) if overflows else None
    if elf is None:
        return False
    size_bytes = _stack_reserve_bytes(project, _call_graph(project, variant, elf))
    file = project.directory / "build" / "stack.json"
    earlier = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    fitted = {**earlier, variant: size_bytes, "empty": size_bytes}
    if fitted == earlier:
        return False
    file.write_text(
        json.dumps(fitted, indent=2, sort_keys=True) + "\n", encoding="utf-8", newline="\n"
    )
    return True


def _stack_reserve_bytes(project: _ProjectFacts, graph: CallGraph) -> int:
    """Return the reserve for the worst path, an exception, and a fault report in either half."""
    worst = _stacks(project, graph)[1]
    fault = graph.worst(project.root).size_bytes + project.exception_frame_bytes
    report = 2 * graph.worst(_FAULT_ROOT).size_bytes
    least = project.stack_bytes if worst.unknown else 0
    size_bytes = max(worst.size_bytes, fault, report, least)
    return -(-size_bytes // _STACK_ALIGN) * _STACK_ALIGN


def _messages(project: _ProjectFacts, output: str) -> list[str]:
    commands = (project.tool("gcc") + " ", project.tool("objcopy") + " ", "clang ")
    zig = (*(shlex.quote(word) for word in zig_command()[:1]), "zig ")
    return [line for line in output.splitlines() if not line.startswith((*commands, *zig))]


def _link_anyway(
    project: _ProjectFacts, variant: Variant, output: str, timeout_s: float
) -> Path | None:
    """Link an overfull image again without the size check, so that its contents can be listed."""
    image = f"-o build/{variant}/firmware.elf"
    if project.compiler == "zig":
        return None
    links = [line for line in output.splitlines() if "-Tboard/link.ld" in line and image in line]
    if not links:
        return None
    words = shlex.split(links[-1])
    target = "build/does_not_fit.elf"
    words[words.index("-o") + 1] = target
    _run([*words, "-Wl,--noinhibit-exec"], project.directory, timeout_s)
    elf = project.directory / target
    return elf if elf.is_file() else None


def _run(
    command: Sequence[str], directory: Path, timeout_s: float, objects: Path | None = None
) -> tuple[int, str]:
    shared = {} if objects is None else {"FIRMWRIGHT_OBJECTS": str(objects)}
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env={**os.environ, **shared, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as problem:
        what = f"the build took longer than {timeout_s:g} s."
        raise ToolFailedError(what, command=command, where=str(directory)) from problem
    return done.returncode, done.stdout.decode("utf-8", "replace")


def _stack_use(
    project: _ProjectFacts, variant: Variant, elf: Path
) -> tuple[StackUsage, StackUsage]:
    """Return the worst stack use of the models and of the firmware; both are unknown with zig."""
    if project.compiler == "zig":
        return StackUsage("", 0, (), ("",)), StackUsage(project.root, 0, (), (project.root,))
    return _stacks(project, _call_graph(project, variant, elf))


def _call_graph(project: _ProjectFacts, variant: Variant, elf: Path) -> CallGraph:
    command = [project.tool("objdump"), "-d", str(elf)]
    status, disassembly = _run(command, project.directory, BUILD_TIMEOUT_S)
    if status != 0:
        what = "the firmware could not be disassembled."
        raise ToolFailedError(what, command=command, exit_status=status, output=disassembly)
    build = project.directory / "build" / variant
    glue, model = read_frames(build / "firmware"), read_frames(build / "model")
    return CallGraph(disassembly, read_frames(build), glue.keys(), model.keys())


def _stacks(project: _ProjectFacts, graph: CallGraph) -> tuple[StackUsage, StackUsage]:
    """Return the worst stack use of the models' entry points and that of the whole firmware."""
    models = [file.stem for file in sorted((project.directory / "model").glob("*.c"))]
    entries = [f"{model}_{entry}" for model in models for entry in _MODEL_ENTRIES]
    stacks = [graph.worst(entry) for entry in entries if graph.has(entry)]
    stack = max(stacks, key=lambda s: s.size_bytes, default=StackUsage("", 0, ()))
    return stack, _with_interrupt(project, graph, graph.worst(project.root))


def _with_interrupt(project: _ProjectFacts, graph: CallGraph, use: StackUsage) -> StackUsage:
    """Add the cycle counter's interrupt, which may occur at the deepest point."""
    if not project.counter_interrupts or not graph.has(_COUNTER_ROOT):
        return use
    extra = project.exception_frame_bytes + graph.worst(_COUNTER_ROOT).size_bytes
    path = (*use.path, _COUNTER_ROOT)
    return StackUsage(use.root, use.size_bytes + extra, path, use.unknown)
