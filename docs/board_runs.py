"""Run models on the emulators of boards, record the results, and write the table.

    python docs/board_runs.py MODELS -b rpi-pico -m kws_ref_model -m digits
    python docs/board_runs.py MODELS -b rpi-pico --selftest
    python docs/board_runs.py               # the table of the record

MODELS is the folder of the MLPerf Tiny models. The record is
benchmarks/board_runs.json, the page docs/reference/board-runs.md. A run replaces what
the record has of that board and model. `tests/test_board_runs.py` compares the page
with the record, and finds records of boards whose files have changed since.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from firmwright.base.resources import boards_dir
from firmwright.boards import Board, list_boards, list_chips, load_board
from firmwright.cli.board_state import describe_validation
from firmwright.flows.board.model_session import open_session
from firmwright.flows.evidence.tool_versions import installed_emulator
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "benchmarks" / "board_runs.json"
PAGE = ROOT / "docs" / "reference" / "board-runs.md"
MARKER = "<!-- table: board runs -->\n"
DIGITS = ROOT / "examples" / "01_digits" / "digits.tflite"
MODELS = {
    "digits": "digits",
    "kws_ref_model": "kws",
    "vww_96_int8": "vww",
    "pretrainedResnet_quant": "ic",
    "ad01_int8": "ad",
    "str_ww_ref_model": "ww",
}
MAIN_MODEL = "kws_ref_model"
"""The model whose figures the table has; digits where it does not fit."""
FIGURES = ("flash_bytes", "ram_bytes", "instructions")
NOT_RUN = "–"
CLOCKS = {"raised": "raised", "no driver": NOT_RUN}
"""How the table calls the clock after start-up; `reset` for all others."""


def digest_board(name: str) -> str:
    """Return a hash of the values in the files of a board or chip."""
    folder = boards_dir()
    file = folder / name / "board.toml"
    tables: list[dict[str, Any]] = []
    if file.is_file():
        tables.append(tomllib.loads(file.read_text(encoding="utf-8")))
        name = tables[0].get("soc", "")
    chip = folder / "soc" / f"{name}.toml"
    if chip.is_file():
        tables.append(tomllib.loads(chip.read_text(encoding="utf-8")))
    text = json.dumps(tables, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def runnable_boards() -> dict[str, Board]:
    """Return the boards and chips that an emulator runs, by name."""
    boards = [board for board in list_boards() if not board.is_host]
    of_boards = {board.soc for board in boards}
    boards += [chip for chip in list_chips() if chip.name not in of_boards]
    emulated = (board for board in boards if board.validation == "emulated")
    return {board.name: board for board in emulated}


def emulator_version(board: Board) -> str:
    """Return `QEMU 7.2.22`, `LabWired 0.25.0` and so on, of what is installed."""
    version = installed_emulator(board)
    assert version, f"the emulator of {board.name} is not installed"
    return f"{describe_validation(board).removeprefix('emulated by ')} {version}"


def firmwright(*words: str | Path) -> dict[str, Any]:
    """Return the output of a command with --json."""
    command = [sys.executable, "-m", "firmwright", *words, "--json"]
    said = subprocess.run(command, check=False, capture_output=True, text=True)
    output: dict[str, Any] = json.loads(said.stdout)
    return output


def run_model(board: Board, model: Path, samples: int) -> dict[str, Any]:
    """Return the record of one model on one board."""
    target = ("--board", board.name)
    built = firmwright("build", model, *target)
    if not built["ok"]:
        return {"error": built["error"]["code"]}
    verified = firmwright("verify", model, *target, "--samples", str(samples))
    if "mismatches" not in verified:
        return {"error": verified["error"]["what"]}
    record = {name: verified[name] for name in ("samples", "values", "mismatches")}
    record["reference"] = verified["reference"]
    record["flash_bytes"] = built["model_flash_bytes"]
    record["ram_bytes"] = built["model_ram_with_stack_bytes"]
    if board.run.kind == "qemu":
        profile = firmwright("profile", model, *target)
        record["instructions"] = profile.get("instructions")
    return record


def run_start_up(board: Board) -> str:
    """Return `raised` if start-up raised the clock, or why it has the reset clock."""
    if board.clock is None:
        return "no driver"
    compiled = compile_for(load_model(DIGITS), board=board.name)
    with open_session(compiled) as session:
        return session.device.info.start_up_text or "raised"


def run_selftest(board: Board) -> dict[str, Any]:
    """Return the record of one conformance case of each operator."""
    words = ("--board", board.name, "--one-each", "--samples", "1")
    tested = firmwright("selftest", *words)
    if "cases" not in tested:
        return {"error": tested["error"]["what"]}
    failed = len(tested["failed"])
    skipped = len(tested["skipped"])
    return {"cases": tested["cases"], "failed": failed, "skipped": skipped}


def read_record() -> dict[str, Any]:
    record: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return record


def record_run(name: str, models: Sequence[Path], args: argparse.Namespace) -> None:
    """Run models, and the selftest if `args` has it, on a board; write each result."""
    board = load_board(name)
    state = {"emulator": emulator_version(board), "digest": digest_board(name)}
    _write_result(name, state, {"clock": run_start_up(board)})
    for model in models:
        result = run_model(board, model, args.samples)
        _write_result(name, state, {"models": {model.stem: result}})
    if args.selftest:
        _write_result(name, state, {"selftest": run_selftest(board)})


def _write_result(name: str, state: dict[str, str], result: dict[str, Any]) -> None:
    """Add a result to the record; results of another state of the board go."""
    record = read_record() if RECORD.is_file() else {}
    entry = record.get(name, {})
    if any(entry.get(key) != value for key, value in state.items()):
        entry = {**state, "models": {}}
    models = {**entry["models"], **result.get("models", {})}
    record[name] = {**entry, **result, "models": models}
    text = json.dumps(record, indent=1, sort_keys=True)
    RECORD.write_text(text + "\n", encoding="utf-8")
    print(name, result, flush=True)


def table(record: dict[str, Any]) -> str:
    """Return the table of all boards in Markdown, first those that were run."""
    lines = [
        "| board | emulator | clock | selftest | bit-exact | samples | figures of | "
        "flash | RAM | instructions |",
        "| --- | --- | --- | --: | --- | --: | --- | --: | --: | --: |",
    ]
    boards = runnable_boards()
    for name in sorted(record):
        lines.append(_row(name, record[name]))
    others = [name for name in sorted(boards) if name not in record]
    built = [board for board in list_boards() if board.validation == "built"]
    for name in others + sorted(board.name for board in built):
        lines.append(f"| `{name}` | {' | '.join([NOT_RUN] * 9)} |")
    return "\n".join(lines) + "\n"


def _row(name: str, entry: dict[str, Any]) -> str:
    results = entry["models"]
    passed = [model for model in MODELS if results.get(model, {}).get("samples")]
    exact = ", ".join(MODELS[m] for m in passed if not results[m]["mismatches"])
    samples = min((results[model]["samples"] for model in passed), default=NOT_RUN)
    shown = next((m for m in (MAIN_MODEL, *passed) if m in passed), "")
    figures = [NOT_RUN] * 4
    if shown:
        values = (results[shown].get(key) for key in FIGURES)
        texts = (NOT_RUN if value is None else f"{value:,}" for value in values)
        figures = [MODELS[shown], *texts]
    clock = CLOCKS.get(entry["clock"], "reset")
    cells = [f"`{name}`", entry["emulator"], clock, _selftest(entry), exact or NOT_RUN]
    return f"| {' | '.join([*cells, str(samples), *figures])} |"


def _selftest(entry: dict[str, Any]) -> str:
    result = entry.get("selftest", {})
    if "cases" not in result:
        return NOT_RUN
    return f"{result['cases'] - result['failed']:,} of {result['cases']:,}"


def write_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, marker, after = text.partition(MARKER)
    assert marker, f"{PAGE} has no {MARKER}"
    rest = after.partition("\n\n")[2]
    PAGE.write_text(f"{before}{MARKER}{table(read_record())}\n{rest}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="?", type=Path)
    parser.add_argument("-b", "--board", action="append", default=[])
    parser.add_argument("-m", "--model", action="append", choices=MODELS, default=[])
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--selftest", action="store_true")
    args = parser.parse_args()
    if args.models:
        models: list[Path] = []
        for name in args.model:
            own = args.models / f"{name}.tflite"
            models.append(DIGITS if name == "digits" else own)
        for board in args.board or runnable_boards():
            record_run(board, models, args)
    write_page()


if __name__ == "__main__":
    main()
