"""The catalog of public models: facts about files that their authors publish.

It has no models. sources.csv is written by hand: where each file is published, and a
name for it. models.csv and figures.csv are written by benchmarks/zoo.py, which compares
each model with its reference runtime and predicts its needs on the boards.
"""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from firmwright.base.errors import InternalError

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where a model is published, and its name, by the SHA-256 of the model file.

    `path` is that of the file in the GitHub repository. `license` is the SPDX
    identifier of the repository's license file, or "" if it has none; the model itself
    may have another. `input_shape` is the value of `--input-shape` with which the
    figures of a model with open sizes were predicted, or "".
    """

    sha256: str
    name: str
    task: str
    repository: str
    path: str
    license: str
    input_shape: str

    @property
    def address(self) -> str:
        """Return the address of the file at the head of its repository."""
        path = self.path.replace(" ", "%20")
        return f"https://github.com/{self.repository}/blob/HEAD/{path}"


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is computed from a model file itself.

    `inputs` and `outputs` are texts such as `int8 1x96x96x1`, joined by `; `.
    `reference` is the runtime with which the compiled model was compared, and
    `is_exact` whether all values were equal bit for bit; else they were within the
    tolerance of floats.
    """

    sha256: str
    bytes: int
    inputs: str
    outputs: str
    operators: int
    macs: int
    reference: str
    is_exact: bool
    version: str


@dataclass(frozen=True, slots=True)
class BoardFigures:
    """The predicted needs of a model on a board, in bytes; None if not known.

    If the model does not fit, `workspace_bytes` is the least that any program needs,
    and `flash_bytes` has only the constants. `cycles` are modeled.
    """

    sha256: str
    board: str
    fits: bool
    workspace_bytes: int | None
    flash_bytes: int | None
    stack_bytes: int | None
    instructions: int | None
    cycles: int | None


@dataclass(frozen=True, slots=True)
class ZooModel:
    """A model of the catalog with its figures by board."""

    source: ModelSource
    facts: ModelFacts
    figures: Mapping[str, BoardFigures]


@cache
def read_catalog() -> tuple[ZooModel, ...]:
    """Return the models of the catalog that have figures, by task and name."""
    facts: dict[str, ModelFacts] = {}
    for row in _rows("models.csv"):
        facts[row["sha256"]] = _model_facts(row)
    figures: dict[str, dict[str, BoardFigures]] = {}
    for row in _rows("figures.csv"):
        own = _board_figures(row)
        figures.setdefault(own.sha256, {})[own.board] = own
    models: list[ZooModel] = []
    for source in read_sources():
        if source.sha256 in facts:
            own_figures = figures.get(source.sha256, {})
            models.append(ZooModel(source, facts[source.sha256], own_figures))
    return tuple(
        sorted(models, key=lambda model: (model.source.task, model.source.name))
    )


def read_sources() -> tuple[ModelSource, ...]:
    return tuple(ModelSource(**row) for row in _rows("sources.csv"))


def _rows(name: str) -> Iterator[dict[str, str]]:
    file = FOLDER / name
    try:
        with file.open(encoding="utf-8", newline="") as text:
            yield from csv.DictReader(text)
    except OSError as error:
        what = f"the catalog of models cannot be read: {error.strerror}."
        hint = "install firmwright again."
        raise InternalError(what, where=str(file), hint=hint) from error


def _model_facts(row: Mapping[str, str]) -> ModelFacts:
    return ModelFacts(
        sha256=row["sha256"],
        bytes=int(row["bytes"]),
        inputs=row["inputs"],
        outputs=row["outputs"],
        operators=int(row["operators"]),
        macs=int(row["macs"]),
        reference=row["reference"],
        is_exact=row["is_exact"] == "yes",
        version=row["version"],
    )


def _board_figures(row: Mapping[str, str]) -> BoardFigures:
    return BoardFigures(
        sha256=row["sha256"],
        board=row["board"],
        fits=row["fits"] == "yes",
        workspace_bytes=_number(row["workspace_bytes"]),
        flash_bytes=_number(row["flash_bytes"]),
        stack_bytes=_number(row["stack_bytes"]),
        instructions=_number(row["instructions"]),
        cycles=_number(row["cycles"]),
    )


def _number(text: str) -> int | None:
    return int(text) if text else None
