"""Runs SCons in a project folder and returns the image, linked again if its stack is fitted."""

import json
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from firmwright.artifacts import Image, StackUsage, Variant
from firmwright.base.child_process import run_program
from firmwright.base.errors import ToolFailedError, UsageError
from firmwright.boards import Compiler
from firmwright.build import image_sizes
from firmwright.build.build_failures import explain_failure
from firmwright.build.compiler_selection import choose_compiler, require_compiler
from firmwright.build.image_sizes import LinkedRegion, read_sizes
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
class _ProjectBuild:
    """One build of a project; `port` and the following fields are those of its `board.json`."""

    directory: Path
    variant: Variant
    compiler: Compiler
    objects: Path | None
    board: str
    regions: tuple[LinkedRegion, ...]
    root: str
    port: str
    toolchain: str
    exception_frame_bytes: int
    counter_interrupts: bool
    fit_stack: bool
    stack_bytes: int

    @property
    def elf(self) -> Path:
        return self.directory / "build" / self.variant / "firmware.elf"

    def tool(self, name: str) -> str:
        return f"{self.toolchain}-{name}" if self.toolchain else name


def build_project(
    directory: Path, variant: Variant = "release", *, compiler: Compiler | None = None,
    objects: Path | None = None,
) -> Image:  # fmt: skip
    """Build a variant, and the empty firmware to compare; `objects` is a cache of object files."""
    directory = directory.resolve()
    facts = _read_facts(directory)
    build = _ProjectBuild(
        directory, variant, choose_compiler(compiler, default=facts.pop("compiler")), objects,
        board=facts["name"], root=_ROOTS[facts["port"]],
        regions=tuple(LinkedRegion(**region) for region in facts["memory"]),
        **{f.name: facts[f.name] for f in fields(_ProjectBuild) if f.name in facts},
    )  # fmt: skip
    has_zig_flags = bool(facts.get("zig_flags"))
    require_compiler(
        build.compiler, build.toolchain, board=build.board, has_zig_flags=has_zig_flags
    )
    _link(build)
    elf = build.elf
    sizes = read_sizes(elf, build.regions)
    empty = read_sizes(directory / "build" / "empty" / "firmware.elf", build.regions)
    stack, firmware_stack = _stack_use(build)
    has_library = build.port == "host" and variant == "release"
    others = {file.suffix: file for file in elf.parent.glob("firmware.*")}
    return Image(
        board=build.board, variant=variant, directory=directory, elf=elf, bin=others.get(".bin"),
        hex=others.get(".hex"), library=elf.with_name("libmodel.so") if has_library else None,
        sizes=sizes, model_flash_bytes=sizes.flash_bytes - empty.flash_bytes,
        model_ram_bytes=sizes.ram_bytes - empty.ram_bytes, stack=stack,
        firmware_stack=firmware_stack,
    )  # fmt: skip


def read_project_board(directory: Path) -> str:
    return str(_read_facts(directory)["name"])


def _read_facts(directory: Path) -> dict[str, Any]:
    file = directory / "board" / "board.json"
    if not file.is_file():
        hint = "firmwright compile MODEL --board B -o DIR, then build DIR."
        raise UsageError("this is not a project folder.", where=str(directory), hint=hint)
    facts: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return facts


def _link(build: _ProjectBuild) -> None:
    """Build the variant and the empty firmware; raise an error that explains a failure."""
    scons = [sys.executable, "-m", "SCons", "-Q", "--cache-show", f"-j{os.cpu_count() or 1}"]
    command = [*scons, f"compiler={build.compiler}", build.variant, "empty"]
    status, output = _run(build, command)
    fits = build.fit_stack and build.compiler != "zig"
    if fits and _fit_stack(build, status, output):
        status, output = _run(build, command)
    if status == 0:
        return
    overflows = image_sizes.find_overflows(output, build.regions)
    if overflows:
        elf = _link_anyway(build, output)
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


def _fit_stack(build: _ProjectBuild, status: int, output: str) -> bool:
    """Set the stack reserve to the image's worst stack use; return whether it changed."""
    elf: Path | None = build.elf
    if status != 0:
        overflows = image_sizes.find_overflows(output, build.regions)
        elf = _link_anyway(build, output) if overflows else None
    if elf is None:
        return False
    size_bytes = _stack_reserve_bytes(build, _call_graph(build, elf))
    file = build.directory / "build" / "stack.json"
    earlier = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    fitted = {**earlier, build.variant: size_bytes, "empty": size_bytes}
    if fitted == earlier:
        return False
    text = json.dumps(fitted, indent=2, sort_keys=True) + "\n"
    file.write_text(text, encoding="utf-8", newline="\n")
    return True


def _stack_reserve_bytes(build: _ProjectBuild, graph: CallGraph) -> int:
    """Return the reserve for the worst path, an exception, and a fault report in half of it."""
    worst = _stacks(build, graph)[1]
    fault = graph.worst(build.root).size_bytes + build.exception_frame_bytes
    report = 2 * graph.worst(_FAULT_ROOT).size_bytes
    least = build.stack_bytes if worst.unknown else 0
    size_bytes = max(worst.size_bytes, fault, report, least)
    return -(-size_bytes // _STACK_ALIGN) * _STACK_ALIGN


def _messages(build: _ProjectBuild, output: str) -> list[str]:
    commands = (build.tool("gcc") + " ", build.tool("objcopy") + " ", "clang ")
    zig = (*(shlex.quote(word) for word in zig_command()[:1]), "zig ")
    return [line for line in output.splitlines() if not line.startswith((*commands, *zig))]


def _link_anyway(build: _ProjectBuild, output: str) -> Path | None:
    """Link an overfull image without the size check, to list its contents."""
    image = f"-o build/{build.variant}/firmware.elf"
    if build.compiler == "zig":
        return None
    links = [line for line in output.splitlines() if "-Tboard/link.ld" in line and image in line]
    if not links:
        return None
    words = shlex.split(links[-1])
    target = "build/does_not_fit.elf"
    words[words.index("-o") + 1] = target
    _run(build, [*words, "-Wl,--noinhibit-exec"])
    elf = build.directory / target
    return elf if elf.is_file() else None


def _run(build: _ProjectBuild, command: Sequence[str]) -> tuple[int, str]:
    shared = {} if build.objects is None else {"FIRMWRIGHT_OBJECTS": str(build.objects)}
    return run_program(
        command, "the build", timeout_s=BUILD_TIMEOUT_S, where=str(build.directory),
        folder=build.directory, environment={**shared, "LC_ALL": "C"},
    )  # fmt: skip


def _stack_use(build: _ProjectBuild) -> tuple[StackUsage, StackUsage]:
    """Return the worst stack use of the models and of the firmware; both are unknown with zig."""
    if build.compiler == "zig":
        return StackUsage("", 0, (), ("",)), StackUsage(build.root, 0, (), (build.root,))
    return _stacks(build, _call_graph(build, build.elf))


def _call_graph(build: _ProjectBuild, elf: Path) -> CallGraph:
    command = [build.tool("objdump"), "-d", str(elf)]
    status, disassembly = _run(build, command)
    if status != 0:
        what = "the firmware could not be disassembled."
        raise ToolFailedError(what, command=command, exit_status=status, output=disassembly)
    folder = build.elf.parent
    glue, model = read_frames(folder / "firmware"), read_frames(folder / "model")
    return CallGraph(disassembly, read_frames(folder), glue.keys(), model.keys())


def _stacks(build: _ProjectBuild, graph: CallGraph) -> tuple[StackUsage, StackUsage]:
    """Return the worst stack use of the models' entry points and that of the whole firmware."""
    models = [file.stem for file in sorted((build.directory / "model").glob("*.c"))]
    entries = [f"{model}_{entry}" for model in models for entry in _MODEL_ENTRIES]
    stacks = [graph.worst(entry) for entry in entries if graph.has(entry)]
    stack = max(stacks, key=lambda s: s.size_bytes, default=StackUsage("", 0, ()))
    return stack, _with_interrupt(build, graph, graph.worst(build.root))


def _with_interrupt(build: _ProjectBuild, graph: CallGraph, use: StackUsage) -> StackUsage:
    """Add the cycle counter's interrupt, which may occur at the deepest point."""
    if not build.counter_interrupts or not graph.has(_COUNTER_ROOT):
        return use
    extra = build.exception_frame_bytes + graph.worst(_COUNTER_ROOT).size_bytes
    path = (*use.path, _COUNTER_ROOT)
    return StackUsage(use.root, use.size_bytes + extra, path, use.unknown)
