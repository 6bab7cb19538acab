"""Generation of the project folder that `scons` builds.

A project contains the emitted sources, the board's runtime files, a linker script, a header,
`board/board.json`, and an SConstruct that does not depend on this package.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

from firmwright.artifacts import SourceTree
from firmwright.base.resources import runtime_dir
from firmwright.boards import Board
from firmwright.build import compiler_flags
from firmwright.build.linker_script import (
    INTERRUPT_FREE_COUNTERS,
    entry_symbol,
    extra_constant_regions,
    format_board_header,
    format_linker_script,
)
from firmwright.build.zig_toolchain import zig_flags, zig_target


def write_project(
    board: Board,
    tree: SourceTree,
    directory: Path,
    *,
    model_optimization: str = compiler_flags.MODEL_OPTIMIZATION,
) -> None:
    """Write `tree` and the files needed to build it; files that are already equal are kept."""
    tree.merged(project_files(board, model_optimization)).write(directory)


def project_files(
    board: Board,
    model_optimization: str = compiler_flags.MODEL_OPTIMIZATION,
    *,
    c_standard: str = compiler_flags.C_STANDARD,
) -> SourceTree:
    """Return the files of a project for `board` other than the emitted sources."""
    content = _common_files(board, model_optimization, runtime_files(board), c_standard)
    return SourceTree({**content, "firmware/fwr_app_empty.c": _template("fwr_app_empty.c")})


def _common_files(
    board: Board,
    model_optimization: str,
    runtime: dict[str, bytes],
    c_standard: str = compiler_flags.C_STANDARD,
) -> dict[str, str | bytes]:
    content: dict[str, str | bytes] = {
        "SConstruct": _template("SConstruct"),
        "board/board.json": _board_json(board, model_optimization, runtime, c_standard),
        **runtime,
    }
    if not board.is_host:
        content["board/link.ld"] = format_linker_script(board)
        content["board/fwr_board.h"] = format_board_header(board)
    return content


def runtime_files(board: Board) -> dict[str, bytes]:
    root = runtime_dir()
    port = root / "port" / board.port
    shared = (root / "port").glob("*.h" if board.is_host else "*.[ch]")
    candidates = [*root.glob("*.[ch]"), *shared, *port.glob("*.[ch]")]
    sources = {
        f"runtime/{file.relative_to(root).as_posix()}": file.read_bytes()
        for file in sorted(candidates)
        if not _is_driver_of_another_board(file.stem, board)
    }
    return _in_slot(board, sources) if board.handoff else sources


def bootloader_project_files(board: Board) -> SourceTree:
    assert board.bootloader is not None  # checked by board_for_bootloader
    counts = board.counter.driver in INTERRUPT_FREE_COUNTERS
    parts = ("fwr_link", "console_", *(("counter_",) if counts else ()))
    runtime = {
        path: data
        for path, data in runtime_files(board).items()
        if path.endswith(".h") or Path(path).name.startswith(parts)
    }
    drivers = (f"start_{board.port}.c", f"flash_{board.bootloader.driver}.c")
    runtime |= _bootloader_files("fwr_*.[ch]") | _bootloader_files(*drivers)
    main = (runtime_dir() / "bootloader" / "main.c").read_bytes()
    return SourceTree(
        {
            **_common_files(board, compiler_flags.MODEL_OPTIMIZATION, runtime),
            "firmware/fwr_app.c": main,
            "firmware/fwr_app_empty.c": main,
        }
    )


def _in_slot(board: Board, runtime: dict[str, bytes]) -> dict[str, bytes]:
    """Return the runtime files of an image in a slot: an application or a model update."""
    shared = _bootloader_files("fwr_handoff.h", "fwr_image.h", "fwr_words.h")
    if board.is_model_update:
        headers = {path: data for path, data in runtime.items() if path.endswith(".h")}
        return headers | shared | _bootloader_files("model_image.c")
    application = {path: data for path, data in runtime.items() if path != "runtime/fwr_main.c"}
    return application | shared | _bootloader_files("slot_main.c")


def _bootloader_files(*patterns: str) -> dict[str, bytes]:
    root = runtime_dir() / "bootloader"
    paths = sorted(file for pattern in patterns for file in root.glob(pattern))
    return {f"runtime/{file.name}": file.read_bytes() for file in paths}


def _is_driver_of_another_board(stem: str, board: Board) -> bool:
    drivers = {f"console_{board.console.driver}", f"counter_{board.counter.driver}"}
    if board.clock is not None:
        drivers.add(f"clock_{board.clock.driver}")
    if board.boot:
        drivers.add(f"boot_{board.boot}")
    if board.watchdog is not None:
        drivers.add(f"watchdog_{board.watchdog.driver}")
    if board.cores is not None:
        drivers.add(f"cores_{board.cores.driver}")
    if board.dma is not None:
        drivers.add(f"dma_{board.dma.driver}")
    kinds = ("boot_", "clock_", "console_", "cores_", "counter_", "dma_", "watchdog_")
    return stem.startswith(kinds) and stem not in drivers


def _template(name: str) -> str:
    return (files("firmwright.build") / "templates" / name).read_text(encoding="utf-8")


def _board_json(
    board: Board, model_optimization: str, runtime: Iterable[str], c_standard: str
) -> str:
    facts = {
        "name": board.name,
        "core": board.core,
        "port": board.port,
        "toolchain": board.toolchain,
        "compile_flags": compiler_flags.compile_flags(board, c_standard),
        "clang_flags": compiler_flags.clang_flags(board, c_standard),
        "zig_flags": zig_flags(board, c_standard),
        "zig_target": zig_target(board),
        "library_flags": compiler_flags.library_flags(board),
        "warnings": compiler_flags.WARNINGS,
        "runtime_sources": sorted((f for f in runtime if f.endswith(".c")), key=_link_position),
        "model_optimization": model_optimization,
        "runtime_optimization": compiler_flags.RUNTIME_OPTIMIZATION,
        "link_flags": compiler_flags.link_flags(board),
        "memory": [
            {"name": r.name, "start": r.start, "size_bytes": r.size_bytes, "kind": r.kind}
            for r in board.memory
        ],
        "sections_beside": []
        if board.is_host
        else [f".rodata.{r.name}" for r in extra_constant_regions(board)],
        "exception_frame_bytes": _exception_frame_bytes(board),
        "counter_interrupts": board.counter.driver == "systick",
        "stack_bytes": board.limits.stack_bytes,
        "fit_stack": board.limits.fit_stack,
        "watchdog": board.watchdog is not None,
    }
    if board.is_model_update:
        facts["root"] = entry_symbol(board)
    return json.dumps(facts, indent=2) + "\n"


def _link_position(file: str) -> str:
    return file.replace("fwr_server", "fwr_link_server")


def _exception_frame_bytes(board: Board) -> int:
    """Return the size of a Cortex-M exception frame: 8 words, 18 more with FPU, 1 for alignment."""
    if board.port != "cortex_m":
        return 0
    has_fpu = "-mfloat-abi=hard" in board.cpu_flags
    return 4 * (8 + 1 + (18 if has_fpu else 0))
