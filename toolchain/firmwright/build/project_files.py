"""The files that a project needs besides the generated sources to be built by `scons` alone.

They are the board's runtime files, a linker script, a header, `board/board.json` and an SConstruct.
"""

import json
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

from firmwright.artifacts import SourceTree
from firmwright.base.resources import runtime_dir
from firmwright.boards import Board
from firmwright.build import compiler_flags, linker_script
from firmwright.build.zig_toolchain import zig_flags, zig_target

_PERIPHERALS = ("console", "counter", "clock", "watchdog", "cores", "dma")
"""The attributes of a board that have a driver, and the prefixes of the drivers' file names."""


def project_files(board: Board, *, c_standard: str = compiler_flags.C_STANDARD) -> SourceTree:
    """Return the files of a project for `board` other than the emitted sources."""
    content = _common_files(board, runtime_files(board), c_standard)
    return SourceTree({**content, "firmware/fwr_app_empty.c": _template("fwr_app_empty.c")})


def _common_files(
    board: Board, runtime: dict[str, bytes], c_standard: str = compiler_flags.C_STANDARD
) -> dict[str, str | bytes]:
    content: dict[str, str | bytes] = {
        "SConstruct": _template("SConstruct"),
        "board/board.json": _board_json(board, runtime, c_standard),
        **runtime,
    }
    if not board.is_host:
        content["board/link.ld"] = linker_script.format_linker_script(board)
        content["board/fwr_board.h"] = linker_script.format_board_header(board)
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
    counts = board.counter.driver in linker_script.INTERRUPT_FREE_COUNTERS
    parts = ("fwr_link", "console_", *(("counter_",) if counts else ()))
    runtime = {
        path: data
        for path, data in runtime_files(board).items()
        if path.endswith(".h") or Path(path).name.startswith(parts)
    }
    drivers = (f"start_{board.port}.c", f"flash_{board.bootloader.driver}.c")
    runtime |= _bootloader_files("fwr_*.[ch]") | _bootloader_files(*drivers)
    main = (runtime_dir() / "bootloader" / "main.c").read_bytes()
    programs = {"firmware/fwr_app.c": main, "firmware/fwr_app_empty.c": main}
    return SourceTree({**_common_files(board, runtime), **programs})


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
    peripherals = {kind: getattr(board, kind) for kind in _PERIPHERALS}
    own = {f"{kind}_{item.driver}" for kind, item in peripherals.items() if item is not None}
    kinds = ("boot_", *(f"{kind}_" for kind in peripherals))
    return stem.startswith(kinds) and stem not in {*own, f"boot_{board.boot}"}


def _template(name: str) -> str:
    return (files("firmwright.build") / "templates" / name).read_text(encoding="utf-8")


def _board_json(board: Board, runtime: Iterable[str], c_standard: str) -> str:
    beside = () if board.is_host else linker_script.extra_constant_regions(board)
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
        "model_optimization": compiler_flags.MODEL_OPTIMIZATION,
        "runtime_optimization": compiler_flags.RUNTIME_OPTIMIZATION,
        "link_flags": compiler_flags.link_flags(board),
        "memory": [
            {"name": r.name, "start": r.start, "size_bytes": r.size_bytes, "kind": r.kind}
            for r in board.memory
        ],
        "sections_beside": [f".rodata.{r.name}" for r in beside],
        "exception_frame_bytes": _exception_frame_bytes(board),
        "counter_interrupts": board.counter.driver == "systick",
        "stack_bytes": board.limits.stack_bytes,
        "fit_stack": board.limits.fit_stack,
        "watchdog": board.watchdog is not None,
    }
    if board.is_model_update:
        facts["root"] = linker_script.entry_symbol(board)
    return json.dumps(facts, indent=2) + "\n"


def _link_position(file: str) -> str:
    return file.replace("fwr_server", "fwr_link_server")


def _exception_frame_bytes(board: Board) -> int:
    """Return the size of a Cortex-M exception frame: 8 words, 18 more with FPU, 1 for alignment."""
    if board.port != "cortex_m":
        return 0
    has_fpu = "-mfloat-abi=hard" in board.cpu_flags
    return 4 * (8 + 1 + (18 if has_fpu else 0))
