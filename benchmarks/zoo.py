# ruff: noqa: INP001  # a script, not a package
"""Write the figures of the catalog of public models, from files that you have.

    python benchmarks/zoo.py FOLDER...

Every model file in the folders that the catalog's sources.csv names by its SHA-256 is
compared with its reference runtime on this PC, as by `firmwright census`, and its needs
are predicted for the boards, as by `firmwright fit`; nothing is emulated. Models that
pass are written to models.csv and figures.csv; models that are in none of the folders
keep their rows. All models take about an hour on two cores with other work.
"""

import argparse
import csv
import logging
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path

from firmwright.base.display_names import format_shape
from firmwright.base.version import VERSION
from firmwright.cli.option_values import input_shape
from firmwright.flows.executors import open_executor
from firmwright.flows.model.model import (
    Model,
    load_model_of_many,
    model_inputs,
    model_outputs,
)
from firmwright.flows.verify.census import CensusTask, take_census
from firmwright.frontends.tflite import is_c_source
from firmwright.ir.module import IoTensor
from firmwright.report.census_page import CensusEntry, CensusStatus
from firmwright.zoo.catalog import (
    FOLDER,
    BoardFigures,
    ModelFacts,
    ModelSource,
    read_catalog,
    read_sources,
)
from firmwright.zoo.recognition import find_models

BOARDS = (
    "microbit",
    "rpi-pico",
    "mps2-an385",
    "nucleo-l4r5zi",
    "mps2-an386",
    "rpi-pico2",
    "mps3-an547",
    "qemu-riscv32-virt",
)
"""Boards for the kinds of cores, with enough memory, and a small one."""
SAMPLES = 4
TIMEOUT_S = 1800.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    seconds = "the most seconds for a model"
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S, help=seconds)
    args = parser.parse_args()
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger("firmwright.flows.verify.census").setLevel(logging.INFO)
    files = find_files(args.folders)
    sources = [source for source in read_sources() if source.sha256 in files]
    entries = examine(sources, files, args.jobs, args.timeout)
    facts: dict[str, ModelFacts] = {}
    figures: dict[str, list[BoardFigures]] = {}
    for model in read_catalog():
        facts[model.source.sha256] = model.facts
        figures[model.source.sha256] = list(model.figures.values())
    for source, entry in zip(sources, entries, strict=True):
        sha256 = source.sha256
        facts.pop(sha256, None)
        if not entry.passed:
            print(f"{source.name}: {entry.status}, {entry.reason}", file=sys.stderr)
            continue
        facts[sha256] = facts_of(source, files[sha256], entry)
        figures[sha256] = figures_of(source, entry)
    rows: list[BoardFigures] = []
    for sha256 in sorted(facts):
        rows += figures[sha256]
    write_rows(FOLDER / "models.csv", ModelFacts, [facts[key] for key in sorted(facts)])
    write_rows(FOLDER / "figures.csv", BoardFigures, rows)


def find_files(folders: Iterable[Path]) -> Mapping[str, Path]:
    known = [source.sha256 for source in read_sources()]
    files: dict[str, Path] = {}
    for folder in folders:
        files = {**find_models(folder, known), **files}
    return files


def examine(
    sources: Sequence[ModelSource],
    files: Mapping[str, Path],
    jobs: int,
    timeout_s: float,
) -> tuple[CensusEntry, ...]:
    tasks: list[CensusTask] = []
    for source in sources:
        path = files[source.sha256]
        task = CensusTask(
            name=source.name,
            path=str(path),
            size_bytes=path.stat().st_size,
            options={},
            shapes=shapes_of(source),
            samples=SAMPLES,
            with_profile=False,
            timeout_s=timeout_s,
            fit_boards=BOARDS,
        )
        tasks.append(task)
    with open_executor(jobs) as executor:
        return take_census(tasks, executor)


def shapes_of(source: ModelSource) -> Mapping[str, tuple[int, ...]]:
    return dict([input_shape(source.input_shape)]) if source.input_shape else {}


def facts_of(source: ModelSource, path: Path, entry: CensusEntry) -> ModelFacts:
    model = load_model_of_many(path, shapes_of(source))
    return ModelFacts(
        sha256=source.sha256,
        bytes=file_bytes(path, model),
        inputs=describe_tensors(model_inputs(model)),
        outputs=describe_tensors(model_outputs(model)),
        operators=entry.operators or 0,
        macs=entry.macs or 0,
        reference=entry.reference,
        is_exact=entry.status is CensusStatus.EQUAL,
        version=VERSION,
    )


def file_bytes(path: Path, model: Model) -> int:
    """Return the size of the model file, or of the array in a C file."""
    if is_c_source(path.name):
        return len(model.source or b"")
    # The source has the given shapes.
    return path.stat().st_size


def describe_tensors(tensors: Sequence[IoTensor]) -> str:
    texts: list[str] = []
    for tensor in tensors:
        texts.append(f"{tensor.type.dtype.name} {format_shape(tensor.type.shape)}")
    return "; ".join(texts)


def figures_of(source: ModelSource, entry: CensusEntry) -> list[BoardFigures]:
    figures: list[BoardFigures] = []
    for fit in entry.fits:
        own = BoardFigures(
            sha256=source.sha256,
            board=fit.board,
            fits=fit.fits,
            workspace_bytes=fit.workspace_bytes,
            flash_bytes=fit.flash_bytes,
            stack_bytes=fit.stack_bytes,
            instructions=fit.instructions,
            cycles=fit.cycles,
        )
        figures.append(own)
    return figures


def write_rows(
    file: Path, record: type, rows: Iterable[ModelFacts | BoardFigures]
) -> None:
    with file.open("w", encoding="utf-8", newline="") as text:
        names = [field.name for field in fields(record)]
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({key: _cell(value) for key, value in asdict(row).items()})


def _cell(value: object) -> object:
    match value:
        case True:
            return "yes"
        case False:
            return "no"
        case None:
            return ""
    return value


if __name__ == "__main__":
    main()
