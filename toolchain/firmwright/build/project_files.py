"""A project's files besides models: runtime, linker script, header, build files."""

import json
import re
from collections.abc import Iterable
from importlib.resources import files
from pathlib import PurePosixPath

from firmwright.artifacts import SourceTree
from firmwright.base.errors import BoardError
from firmwright.base.resources import runtime_dir
from firmwright.boards import Board
from firmwright.build import compiler_flags, linker_script
from firmwright.build.zig_toolchain import zig_flags, zig_library_target

_INCLUDE = re.compile(r'^#include "(.*)"$', re.MULTILINE)
_PERIPHERALS = ("console", "counter", "clock", "watchdog", "cores", "dma")
"""Board attributes that have a driver; the drivers' file names begin with them."""


def project_files(
    board: Board, *, c_standard: str = compiler_flags.C_STANDARD
) -> SourceTree:
    """Return the files of a project for `board`, except those of its models.

    Raises:
        BoardError: no firmware can be built for the board's chip.
    """
    if board.export_only:
        what = f"no firmware can be built for this chip: {board.export_only}."
        hint = "firmwright export, and add the model to a project of the chip's SDK."
        raise BoardError(what, where=board.name, hint=hint)
    runtime = runtime_files(board)
    content: dict[str, str | bytes] = {
        "SConstruct": _template("SConstruct"),
        "board/board.json": _board_json(board, runtime, c_standard),
        **runtime,
    }
    if not board.is_host:
        content["board/link.ld"] = linker_script.format_linker_script(board)
        content["board/fwr_board.h"] = linker_script.format_board_header(board)
    return SourceTree(
        {**content, "firmware/fwr_app_empty.c": _template("fwr_app_empty.c")}
    )


def runtime_files(board: Board) -> dict[str, bytes]:
    """Return the runtime library for `board`, with drivers of its peripherals only."""
    root = runtime_dir()
    port = root / "port" / board.port
    shared = (root / "port").glob("*.h" if board.is_host else "*.[ch]")
    candidates = [*root.glob("*.[ch]"), *shared, *port.glob("*.[ch]")]
    chosen: dict[str, bytes] = {}
    for file in sorted(candidates):
        if not _is_driver_of_another_board(file.stem, board):
            chosen[f"runtime/{file.relative_to(root).as_posix()}"] = file.read_bytes()
    return _without_unused_port_headers(chosen)


def _without_unused_port_headers(chosen: dict[str, bytes]) -> dict[str, bytes]:
    """Remove the port headers that no other file includes, such as other chips'."""
    included: set[str] = set()
    for text in chosen.values():
        included.update(
            PurePosixPath(name).name for name in _INCLUDE.findall(text.decode())
        )
    kept: dict[str, bytes] = {}
    for path, text in chosen.items():
        is_port_header = path.startswith("runtime/port/") and path.endswith(".h")
        if not is_port_header or PurePosixPath(path).name in included:
            kept[path] = text
    # Without the removed headers, those that only they include are unused too.
    return kept if len(kept) == len(chosen) else _without_unused_port_headers(kept)


def _is_driver_of_another_board(stem: str, board: Board) -> bool:
    """Return whether a file is a driver that `board` lacks, such as `console_pl011`."""
    prefixes = ["boot_"]
    own = [f"boot_{board.boot}"]
    for kind in _PERIPHERALS:
        prefixes.append(f"{kind}_")
        peripheral = getattr(board, kind)
        if peripheral is not None:
            own.append(f"{kind}_{peripheral.driver}")
    return stem.startswith(tuple(prefixes)) and stem not in own


def _template(name: str) -> str:
    return (files("firmwright.build") / "templates" / name).read_text(encoding="utf-8")


def _board_json(board: Board, runtime: Iterable[str], c_standard: str) -> str:
    beside = () if board.is_host else linker_script.extra_constant_regions(board)
    sources = [file for file in runtime if file.endswith(".c")]
    # The order in which the link's files are linked is that of their earlier names.
    sources.sort(key=lambda file: file.replace("fwr_server", "fwr_link_server"))
    regions: list[dict[str, object]] = []
    for region in board.memory:
        facts_of_region = {
            "name": region.name,
            "start": region.start,
            "size_bytes": region.size_bytes,
            "kind": region.kind,
        }
        regions.append(facts_of_region)
    facts = {
        "name": board.name,
        "core": board.core,
        "port": board.port,
        "toolchain": board.toolchain,
        "compiler": board.compiler,
        "compile_flags": compiler_flags.compile_flags(board, c_standard),
        "clang_flags": compiler_flags.clang_flags(board, c_standard),
        "zig_flags": zig_flags(board, c_standard),
        "zig_target": zig_library_target(board),
        "library_flags": compiler_flags.library_flags(board),
        "warnings": compiler_flags.WARNINGS,
        "runtime_sources": sources,
        "model_optimization": compiler_flags.MODEL_OPTIMIZATION,
        "runtime_optimization": compiler_flags.RUNTIME_OPTIMIZATION,
        "link_flags": compiler_flags.link_flags(board),
        "memory": regions,
        "sections_beside": [f".rodata.{region.name}" for region in beside],
        "data_distance_bytes": 0 if board.is_host else board.flash.data_distance_bytes,
        "exception_frame_bytes": _exception_frame_bytes(board),
        "counter_interrupts": board.counter.driver == "systick",
        "stack_bytes": board.limits.stack_bytes,
        "fit_stack": board.limits.fit_stack,
        "watchdog": board.watchdog is not None,
    }
    return json.dumps(facts, indent=2) + "\n"


def _exception_frame_bytes(board: Board) -> int:
    """Return the size of a Cortex-M exception frame in bytes.

    It has 8 words, 18 more with an FPU, and 1 for alignment.
    """
    if board.port != "cortex_m":
        return 0
    has_fpu = "-mfloat-abi=hard" in board.cpu_flags
    return 4 * (8 + 1 + (18 if has_fpu else 0))
