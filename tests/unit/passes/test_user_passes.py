"""Passes of users: found, placed, verified, recorded."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from importlib import invalidate_caches
from pathlib import Path

import numpy as np
import pytest

from firmwright.base.errors import PluginError, UsageError
from firmwright.cli.main import main
from firmwright.flows.model.compilation import compile_for, module_after, options_for
from firmwright.flows.model.model import load_model, save_module
from firmwright.flows.predict.pareto_rows import pareto_rows
from firmwright.ir.core import Constant
from firmwright.ir.module import IRModule, Pass

ROOT = Path(__file__).resolve().parents[3]
DIGITS = ROOT / "examples" / "01_digits" / "digits.tflite"
PAGE = ROOT / "docs" / "developing" / "adding-a-pass.md"
FAST: dict[str, str] = {"planner": "greedy_by_size"}


@pytest.fixture
def prune_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file on the page, in the current folder."""
    source = re.search(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert source is not None
    (tmp_path / "prune.py").write_text(source[1])
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "prune", raising=False)
    invalidate_caches()
    return tmp_path / "prune.py"


def weights_of(module: IRModule) -> np.ndarray:
    arrays = [
        c.array().ravel() for n, c in sorted(module.constants.items()) if "weights" in n
    ]
    return np.concatenate([a for a in arrays if a.dtype == np.int8])


def halve(module: IRModule) -> IRModule:
    constants = {
        name: Constant.from_array(name, c.array() // 2, c.dtype)
        if name.endswith("weights")
        else c
        for name, c in module.constants.items()
    }
    return replace(module, constants=constants)


@pytest.mark.usefixtures("prune_file")
def test_the_pass_of_the_page(capsys: pytest.CaptureFixture[str]):
    model = load_model(DIGITS)
    plain = module_after(model, "fold-pad", options_for(model.module, {}))
    for word in ("prune:prune", "prune:prune@fold-pad"):
        options = options_for(model.module, {"passes": (word,)})
        pruned = module_after(model, "prune", options)
        small = abs(weights_of(plain).astype(int)) <= 2
        assert small.any()
        assert not weights_of(pruned)[small].any()
        assert np.array_equal(weights_of(pruned)[~small], weights_of(plain)[~small])
    words = [
        "compile",
        str(DIGITS),
        "--pass",
        "prune:prune@fold-pad",
        "-o",
        "out",
        "--json",
    ]
    words += ["--planner", "greedy_by_size"]
    assert main(words) == 0
    recorded = json.loads(Path("out/metadata.json").read_text())["options"]["passes"]
    assert recorded == [{"name": "prune", "after": "fold-pad", "origin": "prune:prune"}]
    capsys.readouterr()
    reproduce = ["reproduce", "out", str(DIGITS)]
    assert main(reproduce) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert (
        "digits was compiled with the pass prune after fold-pad, prune:prune. "
        "Try: install it and give --pass prune:prune@fold-pad."
    ) in message
    assert main([*reproduce, "--pass", "prune:prune@fold-pad"]) == 0
    assert main([*reproduce, "--pass", "prune:prune"]) == 2


def test_a_function_equals_an_edited_model():
    model = load_model(DIGITS)
    edited = compile_for(halve(model.module), **FAST).tree.files
    for step in (halve, Pass("halve", halve), Pass("halve", halve, after="import")):
        files = compile_for(model, passes=[step], **FAST).tree.files
        assert {**files, "metadata.json": ""} == {**edited, "metadata.json": ""}


def test_a_pass_runs_once_at_its_place_also_from_a_saved_module(tmp_path: Path):
    seen: list[str] = []
    calls: list[object] = []

    def note(module: IRModule) -> IRModule:
        calls.append(module.results.stage)
        return module

    def watch(name: str, module: IRModule) -> None:
        seen.append(name)
        if name in ("note", "usmp"):
            save_module(module, tmp_path / f"{name}.fwir")

    steps = [
        Pass("note", note, after="lower-select"),
        Pass("again", note, after="lower-select"),
    ]
    files = compile_for(
        load_model(DIGITS), watch=watch, passes=steps, **FAST
    ).tree.files
    at = seen.index("lower-select")
    assert seen[at : at + 4] == ["lower-select", "note", "again", "compress-weights"]
    assert calls == ["lower-select"] * 2
    for name, expected in (("note", 3), ("usmp", 3)):
        saved = load_model(tmp_path / f"{name}.fwir", trust=True)
        resumed = compile_for(saved, passes=steps, **FAST)
        assert len(calls) == expected
        assert resumed.tree.files["model/digits.c"] == files["model/digits.c"]
    late = Pass("late", note, after="cse")
    with pytest.raises(
        UsageError, match="the pass late follows cse, but the module is at usmp"
    ):
        compile_for(load_model(tmp_path / "usmp.fwir", trust=True), passes=[late])
    calls.clear()
    digits = load_model(DIGITS).module
    pareto_rows(digits, options_for(digits, {"passes": [late]}))
    assert len(calls) == 1


def test_an_entry_point_is_used_only_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "example_passes.py").write_text(
        "from firmwright.ir.module import Pass\n"
        "def run(module):\n    return module.with_attrs(touched=True)\n"
        "TOUCH = Pass('touch', run, after='cse')\n"
    )
    info = tmp_path / "example_passes-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: example-passes\nVersion: 1.2\n"
    )
    (info / "entry_points.txt").write_text(
        "[firmwright.passes]\ntouch = example_passes:TOUCH\n"
    )
    (info / "top_level.txt").write_text("example_passes\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    invalidate_caches()
    compiled = compile_for(load_model(DIGITS), passes=["touch"], **FAST)
    assert compiled.module.attrs["touched"]
    (row,) = compiled.metadata["options"]["passes"]
    assert row == {
        "name": "touch",
        "after": "cse",
        "origin": "example_passes:run example-passes 1.2",
    }
    assert "touched" not in compile_for(load_model(DIGITS), **FAST).module.attrs


def broken(module: IRModule) -> IRModule:
    return replace(module, constants={})


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (
            broken,
            r"the pass broken \(.*:broken\) left an invalid module: .*unknown constant",
        ),
        (lambda module: None, r"returned NoneType, not an IRModule\."),
        (lambda module: 1 // 0, "raised ZeroDivisionError"),
    ],
)
def test_defects_of_a_pass_are_its_own(item, said):
    with pytest.raises(PluginError, match=said):
        compile_for(load_model(DIGITS), passes=[item])


@pytest.mark.parametrize(
    ("passes", "said"),
    [
        (
            ["nowhere:run"],
            "the pass nowhere:run cannot be loaded: No module named 'nowhere'",
        ),
        (
            ["missing"],
            "no installed package has an entry point missing in firmwright.passes",
        ),
        (
            ["json:dumps@csee"],
            r"dumps is to run after 'csee', which is not a pass\. Try: cse\.",
        ),
        (["math:pi"], "the pass math:pi is not a function"),
        ([halve, halve], "two passes have the name halve"),
        ([Pass("cse", halve)], "the pass cse has the name of another one"),
        (
            [Pass("late", halve, after="externalize-constants")],
            "the pass late follows externalize-constants, which does not run",
        ),
    ],
)
def test_wrong_requests_are_reported(passes, said):
    with pytest.raises(UsageError, match=said):
        compile_for(load_model(DIGITS), passes=passes)
