"""Writes the project folder that `scons` turns into firmware.

In: a board and the emitted sources (`model/*.c`, `firmware/fwr_app.c`). Out: the folder, with the
runtime files that the board needs, its linker script and header, `board/board.json` and an
SConstruct that needs nothing of this package. Unchanged files are not touched.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

from firmwright.artifacts import SourceTree
from firmwright.base.resources import runtime_dir
from firmwright.boards import Board
from firmwright.build import flags
from firmwright.build.linker import beside, board_header, link_script


def write_project(
    board: Board,
    tree: SourceTree,
    directory: Path,
    *,
    model_optimisation: str = flags.MODEL_OPTIMISATION,
) -> None:
    """Write `tree` and everything it needs to become firmware for `board` into `directory`."""
    tree.merged(project_files(board, model_optimisation)).write(directory)


def project_files(board: Board, model_optimisation: str = flags.MODEL_OPTIMISATION) -> SourceTree:
    """What a project for `board` holds besides the emitted sources."""
    runtime = runtime_files(board)
    content: dict[str, str | bytes] = {
        "SConstruct": _template("SConstruct"),
        "firmware/fwr_app_empty.c": _template("fwr_app_empty.c"),
        "board/board.json": _board_json(board, model_optimisation, runtime),
        **runtime,
    }
    if not board.is_host:
        content["board/link.ld"] = link_script(board)
        content["board/fwr_board.h"] = board_header(board)
    return SourceTree(content)


def runtime_files(board: Board) -> dict[str, bytes]:
    """The runtime's C files for `board`: of the drivers, only those that it uses."""
    root = runtime_dir()
    port = root / "port" / board.port
    shared = (root / "port").glob("*.h" if board.is_host else "*.[ch]")
    chosen = [*root.glob("*.[ch]"), *shared, *port.glob("*.[ch]")]
    return {
        f"runtime/{file.relative_to(root).as_posix()}": file.read_bytes()
        for file in sorted(chosen)
        if not _is_driver_of_another_board(file.stem, board)
    }


def _is_driver_of_another_board(stem: str, board: Board) -> bool:
    used = {f"console_{board.console.driver}", f"counter_{board.counter.driver}"}
    if board.clock is not None:
        used.add(f"clock_{board.clock.driver}")
    if board.boot:
        used.add(f"boot_{board.boot}")
    return stem.startswith(("boot_", "clock_", "console_", "counter_")) and stem not in used


def _template(name: str) -> str:
    return (files("firmwright.build") / "templates" / name).read_text(encoding="utf-8")


def _board_json(board: Board, model_optimisation: str, runtime: Iterable[str]) -> str:
    facts = {
        "name": board.name,
        "core": board.core,
        "port": board.port,
        "toolchain": board.toolchain,
        "compile_flags": flags.compile_flags(board),
        "clang_flags": flags.clang_flags(board),
        "library_flags": flags.library_flags(board),
        "warnings": flags.WARNINGS,
        "runtime_sources": sorted(file for file in runtime if file.endswith(".c")),
        "model_optimisation": model_optimisation,
        "runtime_optimisation": flags.RUNTIME_OPTIMISATION,
        "link_flags": flags.link_flags(board),
        "memory": [
            {"name": r.name, "start": r.start, "size_bytes": r.size_bytes, "kind": r.kind}
            for r in board.memory
        ],
        "sections_beside": [] if board.is_host else [f".rodata.{r.name}" for r in beside(board)],
        "exception_frame_bytes": _exception_frame_bytes(board),
        "counter_interrupts": board.counter.driver == "systick",
        "stack_bytes": board.limits.stack_bytes,
        "fit_stack": board.limits.fit_stack,
    }
    return json.dumps(facts, indent=2) + "\n"


def _exception_frame_bytes(board: Board) -> int:
    """What a Cortex-M pushes for an exception: 8 words, 18 more with an FPU, one to align."""
    if board.port != "cortex_m":
        return 0
    has_fpu = "-mfloat-abi=hard" in board.cpu_flags
    return 4 * (8 + 1 + (18 if has_fpu else 0))
