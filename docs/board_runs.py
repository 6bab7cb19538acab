"""Run models on the emulators of boards, record the results, and write the table.

    python docs/board_runs.py MODELS -b rpi-pico -m kws_ref_model -m digits
    python docs/board_runs.py MODELS -b rpi-pico --selftest
    python docs/board_runs.py MODELS -b stm32vldiscovery@labwired://stm32f103
    python docs/board_runs.py               # the table of the record

MODELS is the folder of the MLPerf Tiny models. After `@` is the port of another
emulator, which runs the same image. The record is benchmarks/board_runs.json, the page
docs/reference/board-runs.md. A run replaces what the record has of that board and
model. Several processes may run boards at once. `tests/test_board_runs.py` compares the
page with the record, and finds records of boards whose files have changed since.
"""

import argparse
import hashlib
import json
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Unpack

from firmwright.artifacts import Image
from firmwright.base.errors import DoesNotFitError, FirmwrightError
from firmwright.base.file_lock import hold_lock
from firmwright.base.resources import boards_dir
from firmwright.boards import Board, list_boards, list_chips, load_board
from firmwright.cli.board_state import describe_validation
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.board.model_session import (
    ModelSession,
    SessionOptions,
    open_session,
)
from firmwright.flows.evidence.tool_versions import installed_emulator
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.samples.sample_batches import measured_sample
from firmwright.flows.verify.operator_conformance import run_operator_test
from firmwright.flows.verify.verification import verify
from firmwright.pipeline import Compilation

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "benchmarks" / "board_runs.json"
PAGE = ROOT / "docs" / "reference" / "board-runs.md"
LOCK = Path(tempfile.gettempdir()) / "firmwright_board_runs.lock"
MARKER = "<!-- table: board runs -->\n"
DIGITS = ROOT / "examples" / "01_digits" / "digits.tflite"
MODELS = {
    "digits": "digits",
    "kws_ref_model": "kws",
    "ad01_int8": "ad",
    "str_ww_ref_model": "ww",
    "vww_96_int8": "vww",
    "pretrainedResnet_quant": "ic",
}
FIGURES = {
    "kws_ref_model": ("flash_bytes", "ram_bytes", "instructions"),
    "digits": ("instructions",),
}
"""The figures that the table has of a model."""
TOO_LARGE = "does_not_fit"
NOT_RUN = "–"
NO_EMULATOR = "no emulator has this chip"
CLOCKS = {"raised": "raised", "no driver": NOT_RUN}
"""How the table calls the clock after start-up; `reset` for all others."""
RUN_S = 1800.0
"""The time limit of a run; a simulated chip is a thousand times as slow as silicon."""


@dataclass(frozen=True, slots=True)
class Place:
    """A board, the port of another emulator that runs its image or "", and a rate.

    `baud` is the rate of the line after the connection, or 0 for the first one.
    """

    board: Board
    port: str
    baud: int = 0

    @property
    def emulator(self) -> str:
        """Return `QEMU 7.2.22`, `LabWired 0.25.0` and so on, of what is installed."""
        if self.port:
            return f"LabWired {metadata.version('labwired')}"
        version = installed_emulator(self.board)
        assert version, f"the emulator of {self.board.name} is not installed"
        program = describe_validation(self.board).removeprefix("emulated by ")
        return f"{program} {version}"

    def open(
        self, compiled: Compilation, /, **options: Unpack[SessionOptions]
    ) -> ModelSession:
        given: SessionOptions = {
            "port": self.port,
            "timeout_s": RUN_S,
            "baud": self.baud,
            **options,
        }
        return open_session(compiled, **given)


def find_place(name: str, baud: int = 0) -> Place:
    board, _, port = name.partition("@")
    return Place(load_board(board), port, baud)


def digest_board(name: str) -> str:
    """Return a hash of the values in the files of a board or chip.

    That of `pipeline`, which only modeled cycles depend on, is not in it.
    """
    folder = boards_dir()
    file = folder / name / "board.toml"
    tables: list[dict[str, Any]] = []
    if file.is_file():
        tables.append(tomllib.loads(file.read_text(encoding="utf-8")))
        name = tables[0].get("soc", "")
    chip = folder / "soc" / f"{name}.toml"
    if chip.is_file():
        tables.append(tomllib.loads(chip.read_text(encoding="utf-8")))
    for values in tables:
        values.pop("pipeline", None)
    text = json.dumps(tables, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def runnable_boards() -> dict[str, Board]:
    """Return the boards and chips that an emulator runs, by name."""
    boards = [board for board in list_boards() if not board.is_host]
    of_boards = {board.soc for board in boards}
    boards += [chip for chip in list_chips() if chip.name not in of_boards]
    emulated = (board for board in boards if board.validation == "emulated")
    return {board.name: board for board in emulated}


def build_model(board: Board, model: Path) -> tuple[Compilation, Image] | None:
    """Return a model and its release image; None if it does not fit the board."""
    try:
        compiled = compile_for(load_model(model), board=board.name)
        return compiled, build_image(compiled)
    except DoesNotFitError:
        return None


def run_model(place: Place, model: Path, samples: int) -> dict[str, Any]:
    """Return the results of one model on one board, and of its start-up."""
    board = place.board
    built = build_model(board, model)
    if built is None:
        return {"models": {model.stem: {"error": TOO_LARGE}}}
    compiled, image = built
    start_up: list[str] = []

    def open_image(
        compiled: Compilation, /, **options: Unpack[SessionOptions]
    ) -> ModelSession:
        options["image"] = image
        session = place.open(compiled, **options)
        start_up.append(session.device.info.start_up_text)
        return session

    result = verify(compiled, samples=samples, open_with=open_image)
    record: dict[str, Any] = {
        "samples": result.samples,
        "values": result.values,
        "mismatches": result.mismatches,
        "reference": result.reference,
        "flash_bytes": image.model_flash_bytes,
        "ram_bytes": image.model_ram_with_stack_bytes,
    }
    if board.run.kind == "qemu" and not place.port:
        with open_image(compiled) as session:
            sample = measured_sample(compiled.module)
            record["instructions"] = next(session.device.measurements(sample, 1))
    clock = "no driver" if board.clock is None else start_up[0] or "raised"
    return {"models": {model.stem: record}, "clock": clock}


def run_selftest(place: Place) -> dict[str, Any]:
    """Return the results of one conformance case of each operator."""
    name, opener = place.board.name, place.open
    tested = run_operator_test(name, one_each=True, sample_count=1, open_with=opener)
    failed, skipped = len(tested.failed), len(tested.skipped)
    cases = len(tested.results)
    return {"selftest": {"cases": cases, "failed": failed, "skipped": skipped}}


def read_record() -> dict[str, Any]:
    record: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return record


def record_runs(name: str, models: Iterable[Path], args: argparse.Namespace) -> bool:
    """Run models, and the selftest if `args` has it, on a board; write each result.

    Return whether all of them ended.
    """
    place = find_place(name, args.baud)
    state = {"emulator": place.emulator, "digest": digest_board(place.board.name)}
    runs = [
        lambda model=model: run_model(place, model, args.samples) for model in models
    ]
    if args.selftest:
        runs.append(lambda: run_selftest(place))
    ended = True
    for run in runs:
        try:
            _write_result(name, state, run())
        except FirmwrightError as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            ended = False
    return ended


def _write_result(name: str, state: dict[str, str], result: dict[str, Any]) -> None:
    """Add a result to the record; results of another state of the board go."""
    with hold_lock(LOCK):
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
    head = ["board", "emulator", "clock", "selftest", *MODELS.values()]
    head += ["flash", "RAM", "instructions", "of digits"]
    ends = ["---"] * 3 + ["--:"] * (len(head) - 3)
    lines = [_format_row(head), _format_row(ends)]
    for name in sorted(record):
        lines.append(_format_row(_cells(name, record[name])))
    for board in sorted(list_boards(), key=lambda board: board.name):
        if board.validation == "built" and board.name not in record:
            cells = [f"`{board.name}`", NO_EMULATOR]
            lines.append(_format_row(cells + [NOT_RUN] * (len(head) - len(cells))))
    return "\n".join(lines) + "\n"


def _format_row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(name: str, entry: dict[str, Any]) -> list[str]:
    results = entry["models"]
    board, _, port = name.partition("@")
    emulator = entry["emulator"]
    if port:
        emulator += f", {port.partition('://')[2]}"
    clock = CLOCKS.get(entry.get("clock", "no driver"), "reset")
    cells = [f"`{board}`", emulator, clock, _selftest(entry)]
    cells += [_verdict(results.get(model, {})) for model in MODELS]
    for model, figures in FIGURES.items():
        values = (results.get(model, {}).get(figure) for figure in figures)
        cells += [NOT_RUN if value is None else f"{value:,}" for value in values]
    return cells


def _verdict(result: dict[str, Any]) -> str:
    """Return the number of equal samples, `too large`, or why there was no run."""
    if result.get("error") == TOO_LARGE:
        return "too large"
    if "samples" in result:
        return f"{result['samples']}" if not result["mismatches"] else "differs"
    return NOT_RUN


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
    parser.add_argument("--baud", type=int, default=0)
    args = parser.parse_args()
    ended = True
    if args.models:
        models: list[Path] = []
        for name in args.model:
            own = args.models / f"{name}.tflite"
            models.append(DIGITS if name == "digits" else own)
        for board in args.board or runnable_boards():
            ended &= record_runs(board, models, args)
    write_page()
    sys.exit(not ended)


if __name__ == "__main__":
    main()
