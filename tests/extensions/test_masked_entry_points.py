"""Without entry points no extension is imported, and what is missing is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import onnx
from firmwright.ir.printer import print_module
from firmwright.pipeline import load_module_bytes
from tests.extensions.test_installed_extension import ROOT
from tests.extensions.tree_ensemble.test_tree_ensemble import FORESTS

KEYWORD = ROOT / "examples" / "02_keyword" / "keyword.tflite"
RUN = """\
import contextlib, io, json, sys
from firmwright.base import plugin_calls

plugin_calls._checkout_entry_points = lambda: {"firmwright.extensions": {}}
from firmwright.cli.main import main

said = []
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        with contextlib.redirect_stdout(io.StringIO()):
            status = main(words)
    said.append([status, errors.getvalue()])
loaded = [name for name in sys.modules if name.startswith("firmwright.extensions.")]
print(json.dumps([said, loaded]))
"""
"""Runs command lines in a Firmwright whose entry points are masked."""


@pytest.fixture
def run_masked(python: Callable[..., str]) -> Callable[..., list[list[Any]]]:
    """Return status and errors of each command line, in one process."""

    def run(*lines: list[str]) -> list[list[Any]]:
        said, loaded = json.loads(python(["-c", RUN, json.dumps(lines)]))
        assert loaded == [], "the core has imported an extension"
        return list(said)

    return run


def test_a_model_of_the_core_is_compiled(
    run_masked: Callable[..., list[list[Any]]],
    model_path: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    model = model_path("kws_ref_model.tflite")
    out = tmp_path / "out"
    line = ["compile", str(model), "--board", "mps2-an386", "-o", str(out)]
    ((status, errors),) = run_masked(line)
    assert status == 0, errors
    assert (out / "model" / "kws_ref_model.c").is_file()


def test_what_a_model_lacks_is_named(
    run_masked: Callable[..., list[list[Any]]], digits_path: Path, tmp_path: Path
) -> None:
    forest, text = tmp_path / "forest.onnx", tmp_path / "keyword.fwir"
    onnx.save(onnx.load_from_string(FORESTS["on_a_grid"]()), forest)
    module = load_module_bytes(KEYWORD.read_bytes(), "keyword.tflite", name="keyword")
    text.write_text(print_module(module))
    out = ["-o", str(tmp_path / "out")]
    said = run_masked(
        ["compile", str(KEYWORD), *out],
        ["compile", str(text), *out],
        ["compile", str(forest), *out],
        ["compile", str(digits_path), "--target", "cmsis-nn, cortex-m", *out],
    )
    lacks = (
        "custom:SignalFramer at",
        "framer",
        "TreeEnsembleRegressor",
        "unknown target kind 'cmsis-nn'",
    )
    for (status, errors), words in zip(said, lacks, strict=True):
        assert status == 2
        assert words in errors
    assert "or a custom operator" in said[0][1]
