"""The catalog of public models: its facts, its figures, and the verb `zoo`."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from firmwright.boards import load_board
from firmwright.cli.main import main
from firmwright.cli.zoo_model import commands_of
from firmwright.flows.model.model import load_model
from firmwright.flows.predict.fit import fit_boards
from firmwright.report.census_page import CensusEntry, CensusStatus
from firmwright.zoo.catalog import FOLDER, ZooModel, read_catalog, read_sources
from firmwright.zoo.needs import reference_board
from firmwright.zoo.recognition import find_models, model_digest
from tests.unit.zoo.zoo_page import render_zoo_page

ROOT = Path(__file__).parents[3]
DIGITS = ROOT / "examples/01_digits/digits.tflite"
RECOMPUTED = {
    "mlperf-tiny-kws-int8": ("kws_ref_model.tflite", "mps2-an386"),
    "mlperf-tiny-ad-int8": ("ad01_int8.tflite", "mps3-an547"),
    "mlperf-tiny-wake-word-int8": ("str_ww_ref_model.tflite", "microbit"),
}
"""Models whose figures are predicted anew: the file and the board."""
TOLERANCE = {"workspace_bytes": 0.05, "flash_bytes": 0.05, "instructions": 0.10}
"""The shares by which kernels that changed may differ until the catalog is remade."""


def model_named(name: str) -> ZooModel:
    return next(model for model in read_catalog() if model.source.name == name)


def run_json(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_facts_about_each_source_are_complete() -> None:
    sources = read_sources()
    assert len({source.sha256 for source in sources}) == len(sources)
    assert len({source.name for source in sources}) == len(sources)
    for source in sources:
        assert re.fullmatch("[0-9a-f]{64}", source.sha256), source.name
        assert re.fullmatch("[a-z0-9.-]+", source.name)
        assert source.task
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", source.repository)
        assert source.path
        assert source.license == "" or re.fullmatch("[A-Za-z0-9.-]+", source.license)


def test_every_model_has_figures_of_the_same_boards() -> None:
    models = read_catalog()
    assert len(models) > 200
    boards = set(models[0].figures)
    for model in models:
        assert set(model.figures) == boards, model.source.name
        for figures in model.figures.values():
            assert not figures.fits or figures.instructions, model.source.name


@pytest.mark.models
@pytest.mark.parametrize("name", RECOMPUTED)
def test_figures_are_those_of_fit(name: str, model_path: Callable[[str], Path]) -> None:
    stem, board = RECOMPUTED[name]
    file = model_path(stem)
    model = model_named(name)
    assert model_digest(file) == model.source.sha256
    (fit,) = fit_boards(load_model(file), {}, [load_board(board)])
    figures = model.figures[board]
    assert figures.fits == fit.fits
    assert fit.workspace is not None
    assert fit.flash is not None
    now = {
        "workspace_bytes": fit.workspace.need_bytes,
        "flash_bytes": fit.flash.need_bytes,
        "instructions": fit.instructions,
    }
    for key, value in now.items():
        stated = getattr(figures, key)
        if stated is None:
            assert value is None
        else:
            why = f"{key}: run benchmarks/zoo.py, as this is stale"
            assert value == pytest.approx(stated, rel=TOLERANCE[key]), why


@pytest.mark.models
def test_the_script_keeps_the_rows_of_models_that_it_is_not_given(
    model_path: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kws = model_path("kws_ref_model.tflite")
    (tmp_path / "models").mkdir()
    shutil.copy(kws, tmp_path / "models")
    spec = importlib.util.spec_from_file_location("zoo", ROOT / "benchmarks/zoo.py")
    assert spec
    assert spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)

    def census(tasks: list[object], executor: object) -> list[CensusEntry]:
        assert len(tasks) == 1
        status = CensusStatus.EQUAL
        return [CensusEntry("kws", 1, status, operators=7, reference="LiteRT")]

    monkeypatch.setattr(script, "take_census", census)
    monkeypatch.setattr(script, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["zoo.py", str(tmp_path / "models"), "--jobs=1"])
    script.main()
    own = model_digest(kws)
    for name in ("models.csv", "figures.csv"):
        before = (FOLDER / name).read_text(encoding="utf-8").splitlines()
        after = (tmp_path / name).read_text(encoding="utf-8").splitlines()
        kept = [line for line in before if not line.startswith(own)]
        assert [line for line in after if not line.startswith(own)] == kept
    rows = (tmp_path / "models.csv").read_text(encoding="utf-8")
    assert re.search(f"{own},.*int8 1x49x10x1,int8 1x12,7,", rows)


def test_the_page_is_current(request: pytest.FixtureRequest) -> None:
    page, current = ROOT / "docs/zoo.md", render_zoo_page(read_catalog())
    if request.config.getoption("--update-golden"):
        page.write_text(current, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == current, (
        "--update-golden rewrites the page"
    )


def test_the_list_is_of_a_task_and_within_the_limits(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["zoo", "--task", "wake word", "--board", "rpi-pico"]
    data = run_json([*words, "--ram", "8192", "--flash", "100000"], capsys)
    assert data["figures_of"] == "rpi-pico"
    assert data["models"]
    for model in data["models"]:
        assert model["task"] == "wake word"
        assert model["fits"]
        assert model["workspace_bytes"] <= 8192
        assert model["flash_bytes"] <= 100_000
        assert model["milliseconds"]["clock_hz"] == load_board("rpi-pico").modeled_hz
    more = run_json(["zoo", "--task", "wake word", "--board", "microbit"], capsys)
    everything = run_json(
        ["zoo", "--task", "wake word", "--board", "microbit", "--all"], capsys
    )
    assert 0 < len(more["models"]) < len(everything["models"])


@pytest.mark.parametrize(
    ("board", "reference"),
    [
        ("stm32g474re", "nucleo-l4r5zi"),
        ("bluepill-f103", "mps2-an385"),
        ("nucleo-h743zi", "rpi-pico2"),
        ("mps2-an505", "rpi-pico2"),
    ],
)
def test_another_board_has_the_figures_of_one_with_its_instructions(
    board: str, reference: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = reference_board(load_board(board), read_catalog())
    assert found.name == reference
    data = run_json(["zoo", "--board", board, "--all"], capsys)
    assert data["figures_of"] == reference
    assert {model["fits"] for model in data["models"]} <= {True, False, None}
    assert main(["zoo", "--board", board]) == 0
    assert f"those of {reference}" in capsys.readouterr().out


@pytest.mark.parametrize("board", ["host", "stm32wl55jc"])
def test_a_core_without_figures_is_an_error(
    board: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["zoo", "--board", board]) == 2
    assert "no figures for the core" in capsys.readouterr().err


def test_one_model_has_its_origin_its_needs_and_commands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = model_named("mlperf-tiny-kws-int8")
    for which in (model.source.name, model.source.sha256[:8]):
        assert main(["zoo", which]) == 0
        text = capsys.readouterr().out
        assert model.source.address in text
        assert "Apache-2.0" in text
        assert "firmwright fit kws_ref_model.tflite --board mps2-an386" in text
        assert all(board in text for board in model.figures)
    data = run_json(["zoo", model.source.name, "--board", "microbit"], capsys)
    assert data["boards"]["microbit"]["fits"] is True
    assert data["commands"][0] == "firmwright fit kws_ref_model.tflite --board microbit"


def test_commands_state_what_the_model_needs() -> None:
    by_name = {model.source.name: model for model in read_catalog()}
    of_tflm = by_name["audio-preprocessor-int8"]
    assert of_tflm.facts.reference.startswith("TFLM")
    assert all("--numerics tflm" in command for command in commands_of(of_tflm, "b"))
    open_sizes = by_name["contsys-sensor-classifier"]
    shape = " --input-shape raw_sensor_data=1,3,50"
    assert all(shape in command for command in commands_of(open_sizes, "b"))
    # One of three arrays of a C file, of which the compiler reads the largest.
    fit, *_ = commands_of(by_name["seq2seq-decoder-a"], "microbit")
    assert fit == "firmwright fit seq2seq-decoder-a.tflite --board microbit"
    fit, *_ = commands_of(by_name["seq2seq-encoder-decoder"], "microbit")
    assert fit == "firmwright fit model.cpp --board microbit"


@pytest.mark.models
def test_models_are_found_by_their_bytes_also_in_c(
    model_path: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kws = model_path("kws_ref_model.tflite")
    (tmp_path / "sub").mkdir()
    shutil.copy(kws, tmp_path / "sub" / "renamed.tflite")
    wake = model_path("str_ww_ref_model.tflite").read_bytes()
    text = ", ".join(map(str, wake))
    (tmp_path / "model.cc").write_text(f"const unsigned char g[] = {{{text}}};\n")
    shutil.copy(DIGITS, tmp_path)
    (tmp_path / "damaged.onnx").write_bytes(b"\0")
    (tmp_path / "header.h").write_text("extern const unsigned char g[];\n")
    (tmp_path / "broken.tflite").symlink_to(tmp_path / "absent")
    data = run_json(["zoo", "--find", str(tmp_path)], capsys)
    files = {model["name"]: Path(model["file"]).name for model in data["models"]}
    assert files == {
        "mlperf-tiny-kws-int8": "renamed.tflite",
        "mlperf-tiny-wake-word-int8": "model.cc",
    }
    assert main(["zoo", str(tmp_path / "model.cc")]) == 0
    assert f"firmwright fit {tmp_path / 'model.cc'}" in capsys.readouterr().out


def test_wrong_requests_say_what_there_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, text in (
        (["kws-tiny-xyz"], "has no model with 'kws-tiny-xyz'"),
        ([str(DIGITS)], "none of the models of the catalog"),
        (["--task", "wake"], "Try: wake word"),
        (["--find", str(tmp_path / "absent")], "not a folder"),
        (["--board", "microbits"], "microbit"),
        (["mlperf-tiny-kws-int8", "--board", "microbits"], "no board called"),
    ):
        assert main(["zoo", *words]) == 2, words
        assert text in capsys.readouterr().err.replace("\n", " "), words
    assert main(["zoo", "--find", str(tmp_path)]) == 0
    assert "0 of 0 models fit" in capsys.readouterr().out


def test_a_part_of_a_name_lists_the_models_with_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = run_json(["zoo", "microwakeword", "--board", "rpi-pico"], capsys)
    names = [model["name"] for model in data["models"]]
    assert len(names) >= 5
    data = run_json(["zoo", "esphome/"], capsys)
    assert {model["repository"] for model in data["models"]} == {
        "esphome/micro-wake-word-models"
    }


def test_no_file_of_the_catalog_is_followed_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path)
    assert find_models(tmp_path, ["0" * 64]) == {}
