"""Settings and records with one changed value give a message or a sound result.

Each value of a file is replaced by others of the same and of other types, empty, huge,
negative and nested ones, and the commands that read the file run on the result in this
process.
"""

from __future__ import annotations

import copy
import json
import random
import shutil
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from firmwright.base.resources import boards_dir
from firmwright.cli.main import _parser, main, verbs
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.partitioning.partition_result import PARTITION_SCHEMA
from tests.fuzz.tuning_lines import MEASUREMENT

DIGITS = (
    Path(__file__).resolve().parents[2] / "examples" / "01_digits" / "digits.tflite"
)
SEED = 1
SAMPLE = 12
"""Mutations of each file in the gate; all run with --deep."""
VALUES: Sequence[Any] = (
    *(
        True,
        0,
        1,
        -1,
        1.5,
        1e308,
        10**30,
        "",
        "x",
        " ",
        "-x",
        "../x",
        "a\0b",
        "a\nb",
        "\u2028",
    ),
    *([], [[]], ["x"], [1], {}, {"a": 1}, "9" * 5000, "x" * 3000),
)
JSON_VALUES: Sequence[Any] = (*VALUES, None, [None])
BOARD = "mps2-an386"
USED_BY_SBOM = frozenset({"model", "model_id", "source_sha256", "numerics", "compiler"})
PARTITION = {
    "schema": PARTITION_SCHEMA,
    "parts": [
        {"target": "c", "makes": ["conv_2d_1"], "ops": ["conv2d"], "entries": ["x"]}
    ],
}


@dataclass(frozen=True, slots=True)
class Changed:
    """A document with one changed value, and the place of that value."""

    place: tuple[str | int, ...]
    before: Any
    after: Any
    document: Any

    @property
    def has_another_type(self) -> bool:
        return type(self.before) is not type(self.after)


def places(
    value: Any, place: tuple[str | int, ...] = ()
) -> Iterator[tuple[str | int, ...]]:
    """Yield the places of all values; of a list, those of the first three items."""
    if place:
        yield place
    items: Sequence[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))[:3]
    for key, item in items:
        yield from places(item, (*place, key))


def mutations(document: Any, values: Sequence[Any]) -> Iterator[Changed]:
    for place in places(document):
        for value in values:
            changed = copy.deepcopy(document)
            holder = changed
            for key in place[:-1]:
                holder = holder[key]
            before, holder[place[-1]] = holder[place[-1]], value
            yield Changed(place, before, value, changed)


def chosen(
    document: Any, deep: bool, values: Sequence[Any] = JSON_VALUES
) -> list[Changed]:
    every = list(mutations(document, values))
    return every if deep else random.Random(SEED).sample(every, min(SAMPLE, len(every)))


Outcomes = Callable[[Sequence[object], object], int]


@pytest.fixture
def ends_well(capfd: pytest.CaptureFixture[str]) -> Outcomes:
    """Return a function that runs a command and expects a result or a message."""

    def check(words: Sequence[object], about: object) -> int:
        status = main([*map(str, words)])
        said = capfd.readouterr().err
        assert status in (0, 1, 2), (words, about, said[-2000:])
        assert "Traceback" not in said, (words, about, said[-2000:])
        is_explained = any(
            line.startswith("firmwright: ") for line in said.splitlines()
        )
        assert status == 0 or is_explained, (words, about, said)
        return status

    return check


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("changed") / "project"
    sections = (("code", ".fast"),)
    compile_for(
        load_model(DIGITS), board="host", ram_bytes=9000, sections=sections
    ).save(folder)
    return folder


@pytest.fixture
def copied(project: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(project, tmp_path / "project"))


def test_values_of_another_kind_in_metadata_are_found(
    copied: Path, deep: bool, ends_well: Outcomes
) -> None:
    file = copied / "metadata.json"
    facts = json.loads(file.read_text())
    used = {key: facts[key] for key in (*USED_BY_SBOM, "options", "tool_version")}
    for number, changed in enumerate(chosen(used, deep)):
        file.write_text(json.dumps({**facts, **changed.document}))
        status = ends_well(("sbom", copied), changed.place)
        if changed.has_another_type and changed.place[0] in USED_BY_SBOM:
            assert status == 2, (changed.place, changed.after)
        if number % 4:
            continue  # a compilation
        status = ends_well(("reproduce", copied, DIGITS), changed.place)
        if changed.has_another_type:
            assert status in (1, 2), (changed.place, changed.after)


def test_values_of_another_kind_in_the_choices_are_found(
    copied: Path, deep: bool, ends_well: Outcomes
) -> None:
    file = copied / "metadata.json"
    facts = json.loads(file.read_text())
    used = {
        key: facts[key]
        for key in ("choices", "options", "board", "model", "tool_version")
    }
    for changed in chosen(used, deep):
        file.write_text(json.dumps({**facts, **changed.document}))
        status = ends_well(("show", DIGITS, "--update-of", copied), changed.place)
        is_no_budget = (
            changed.place == ("options", "ram_bytes") and changed.after is None
        )
        if changed.has_another_type and not is_no_budget:
            assert status == 2, (changed.place, changed.after)


@pytest.mark.parametrize("key", ["schema", "model", "files"])
def test_a_folder_with_damaged_metadata_is_not_written_to(
    key: str, copied: Path, ends_well: Outcomes
) -> None:
    file = copied / "metadata.json"
    facts = json.loads(file.read_text())
    file.write_text(json.dumps({**facts, key: [7]}))
    before = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    assert ends_well(("compile", DIGITS, "-o", copied), key) == 2
    assert before == {
        path: path.read_bytes() for path in copied.rglob("*") if path.is_file()
    }


def test_a_wrong_value_of_metadata_is_named_with_its_kind(
    copied: Path, fw: Callable
) -> None:
    file = copied / "metadata.json"
    facts = json.loads(file.read_text())
    file.write_text(json.dumps({**facts, "numerics": 7}))
    said = fw("sbom", copied)
    assert said.status == 2
    assert (
        "metadata.json has the numerics 7, which is not litert or tflm or onnx."
        in said.err
    )


def test_changed_values_of_board_json_end_in_a_message(
    copied: Path, deep: bool, ends_well: Outcomes
) -> None:
    file = copied / "board" / "board.json"
    for changed in chosen(json.loads(file.read_text()), deep):
        file.write_text(json.dumps(changed.document))
        status = ends_well(("sbom", copied), changed.place)
        assert status == 2 or not changed.has_another_type, (
            changed.place,
            changed.after,
        )


def test_changed_values_of_a_board_file_end_in_a_message(
    tmp_path: Path, deep: bool, ends_well: Outcomes
) -> None:
    text = (boards_dir() / BOARD / "board.toml").read_text()
    (tmp_path / BOARD).mkdir()
    for changed in chosen(tomllib.loads(text), deep, VALUES):
        (tmp_path / BOARD / "board.toml").write_text(toml_document(changed.document))
        ends_well(("boards", "check", tmp_path / BOARD / "board.toml"), changed.place)


def test_changed_values_of_a_tuning_log_end_in_a_message(
    tmp_path: Path, deep: bool, ends_well: Outcomes
) -> None:
    file = tmp_path / "log.jsonl"
    for changed in chosen(MEASUREMENT, deep):
        file.write_text(f"{json.dumps(changed.document)}\n")
        assert ends_well(("show", DIGITS, "--tuning", file), changed.place) == 0


def test_values_of_another_kind_in_a_partition_are_found(
    tmp_path: Path, deep: bool, ends_well: Outcomes
) -> None:
    file = tmp_path / "parts.json"
    words = ("show", DIGITS, "--target", "c", "--partition", file)
    for changed in chosen(PARTITION, deep):
        file.write_text(json.dumps(changed.document))
        status = ends_well(words, changed.place)
        assert status == 2 or not changed.has_another_type, (
            changed.place,
            changed.after,
        )


def test_values_of_options_in_the_project_file_end_in_a_message(
    tmp_path: Path, deep: bool, ends_well: Outcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(DIGITS, "net.tflite")
    actions = _parser(verbs()).verbs["show"]._actions
    words = (word for action in actions for word in action.option_strings)
    keys = [word[2:] for word in words if word.startswith("--")]
    cases = [(key, value) for key in ("model", *keys) for value in VALUES]
    for key, value in cases if deep else random.Random(SEED).sample(cases, 4 * SAMPLE):
        table = {"model": "net.tflite", "after": "import", key: value}
        Path("firmwright.toml").write_text(toml_document({"show": table}))
        ends_well(("show",), (key, value))


def toml_document(document: dict[str, Any]) -> str:
    return "".join(
        f"{toml_key(key)} = {toml_value(value)}\n" for key, value in document.items()
    )


def toml_key(key: str) -> str:
    return json.dumps(key)


def toml_value(value: Any) -> str:
    """Return a value in TOML; tables are written inline."""
    match value:
        case dict():
            items = (
                f"{toml_key(key)} = {toml_value(item)}" for key, item in value.items()
            )
            return f"{{{', '.join(items)}}}"
        case list():
            return f"[{', '.join(map(toml_value, value))}]"
        case _:
            return json.dumps(value)
