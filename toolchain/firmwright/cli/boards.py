"""`firmwright boards`: list boards or chips, create a board, or check a board file."""

import argparse
from pathlib import Path

from firmwright.base.errors import UsageError
from firmwright.boards import Board, list_boards, list_chips, load_board
from firmwright.boards.load import BOARD_FILE, CHIP_FOLDER, load_chip
from firmwright.boards.new_board import board_of_chip, copy_board
from firmwright.cli.board_state import describe_validation, emulator_of
from firmwright.cli.text_table import Cell, format_pairs, format_table
from firmwright.cli.verb import Outcome
from firmwright.flows.board.port_check import PortCheck, check_port
from firmwright.flows.evidence.tool_versions import installed_emulator


def run(args: argparse.Namespace) -> Outcome:
    folders = args.board_dirs
    if (args.name_or_file is None) != (args.action == "list"):
        needed = "no name" if args.name_or_file else "a name"
        what = f"boards {args.action} takes {needed}."
        hint = "use boards; boards new NAME --chip PART; or boards check FILE."
        raise UsageError(what, hint=hint)
    if args.action == "new":
        return _create(args)
    if args.action == "check":
        return _check(Path(args.name_or_file), folders)
    return _list_chips(folders) if args.chips else _list(folders)


def _create(args: argparse.Namespace) -> Outcome:
    name, place, folders = args.name_or_file, Path(args.output), args.board_dirs
    if bool(args.like) == bool(args.chip):
        what = "a new board needs a chip, or a board to copy."
        hint = "add --chip PART (firmwright boards --chips lists them) or --from B."
        raise UsageError(what, hint=hint)
    if args.chip:
        file = board_of_chip(name, args.chip, place, folders, args.console or None)
    else:
        file = copy_board(name, args.like, place, folders)
    where = f"--board {name} --boards-dir {place}"
    text = (
        f"{file}: edit what differs on your board, then run\n"
        f"  firmwright boards check {file}\n"
        f"  firmwright build MODEL {where}"
    )
    origin = {"from": args.like or None, "chip": args.chip or None}
    return Outcome({"file": str(file), **origin}, text)


def _list_chips(folders: list[Path]) -> Outcome:
    chips = list_chips(folders)
    rows: list[list[Cell]] = []
    for chip in chips:
        sizes: list[Cell] = []
        for size in (chip.flash_bytes, chip.ram_bytes):
            sizes.append(None if size is None else size // 1024)
        rows.append([chip.name, describe_validation(chip), *sizes, chip.description])
    head = ["chip", "validation", "flash KiB", "RAM KiB", ""]
    data = {"chips": [_chip_to_json(chip) for chip in chips]}
    return Outcome(data, format_table(head, rows))


def _chip_to_json(chip: Board) -> dict[str, object]:
    facts = _board_to_json(chip)
    clocks = {"clock_hz": chip.run_hz, "clock_max_hz": chip.clock_max_hz or None}
    return {**facts, **clocks, "export_only": chip.export_only or None}


def _list(folders: list[Path]) -> Outcome:
    boards = list_boards(folders)
    rows: list[list[Cell]] = []
    for board in boards:
        kib: list[Cell] = []
        for size in (board.flash_bytes, board.ram_bytes):
            kib.append(None if size is None else size // 1024)
        rows.append([board.name, describe_validation(board), *kib, board.description])
    head = ["board", "validation", "flash KiB", "RAM KiB", ""]
    data = {"boards": [_board_to_json(board) for board in boards]}
    return Outcome(data, format_table(head, rows))


def _board_to_json(board: Board) -> dict[str, object]:
    emulator = emulator_of(board)
    return {
        "name": board.name,
        "core": board.core,
        "validation": board.validation,
        "emulator": emulator,
        "emulator_version": installed_emulator(board) or None if emulator else None,
        "flash_bytes": board.flash_bytes,
        "ram_bytes": board.ram_bytes,
        "description": board.description,
        "run": board.run.kind,
        "flash_runners": [name for name, _ in board.flash_tools.tools],
    }


def _check(file: Path, folders: list[Path]) -> Outcome:
    folder = file.resolve().parent
    if not file.is_file():
        hint = f"the path of a {BOARD_FILE}, or of a chip's file in a folder soc."
        raise UsageError("there is no such file.", where=str(file), hint=hint)
    places = [folder.parent, *folders]
    if folder.name == CHIP_FOLDER and file.suffix == ".toml":
        board = load_chip(file.stem, places)
    elif file.name == BOARD_FILE:
        board = load_board(folder.name, places)
    else:
        what = f"a board's file is called {BOARD_FILE}, in a folder with its name; "
        what += f"a chip's file is in a folder called {CHIP_FOLDER}."
        raise UsageError(what, where=str(file), hint="rename it, or move it.")
    port = check_port(board, places)
    pools: list[dict[str, object]] = []
    for pool in board.pools():
        pools.append({"name": pool.name, "size_bytes": pool.size_bytes})
    data = {
        **_board_to_json(board),
        "port": port,
        "clock_hz": board.run_hz,
        "modeled_hz": board.modeled_hz,
        "wait_states": None if board.is_host else board.flash.wait_states,
        "clock_settings": {} if board.clock is None else dict(board.clock.settings),
        "pools": pools,
    }
    return Outcome(data, _format_board(board, port))


def _format_board(board: Board, port: PortCheck) -> str:
    clock = board.clock
    speed = f"{board.clock_hz:,} Hz"
    if board.modeled_hz not in (0, board.run_hz):
        speed += f"; times are modeled at {board.modeled_hz:,} Hz"
    if clock is not None:
        settings = ", ".join(f"{name} {value}" for name, value in clock.settings)
        source = f"{clock.hz:,} Hz from {clock.source_hz:,} Hz"
        speed = f"{source} ({settings}); else {speed}"
    pools: list[str] = []
    for pool in board.pools():
        pools.append(f"{pool.name} {pool.size_bytes or 0:,} bytes")
    runners = ", ".join(name for name, _ in board.flash_tools.tools) or "none"
    rows: list[tuple[str, Cell]] = [
        ("board", f"{board.name}: {board.description}"),
        ("core", board.core),
        ("validation", describe_validation(board)),
        ("clock", speed),
        ("flash timing", _format_flash_timing(board)),
        ("console", f"{board.console.driver}, counter {board.counter.driver}"),
        ("pools", ", ".join(pools)),
        ("flash runners", runners),
        ("port", _format_port(port)),
    ]
    if not board.memory:
        return format_pairs(rows)
    regions: list[tuple[str, str, str, int]] = []
    for region in board.memory:
        start = f"{region.start:#010x}"
        regions.append((region.name, region.kind, start, region.size_bytes))
    table = format_table(["region", "kind", "start", "bytes"], regions)
    return f"{format_pairs(rows)}\n\n{table}"


def _format_flash_timing(board: Board) -> str:
    if board.is_host:
        return "–"
    if board.flash.wait_states is None:
        return "wait states unknown, so that modeled times lack them"
    return f"{board.flash.wait_states} wait states at {board.modeled_hz:,} Hz"


def _format_port(port: PortCheck) -> str:
    if port.export_only:
        return f"no firmware can be built: {port.export_only}"
    if port.missing_tool:
        return f"not compiled: {port.missing_tool}"
    return f"compiles and links: {port.flash_bytes:,} bytes of flash without a model"
