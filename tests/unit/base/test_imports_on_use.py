"""A run imports the packages that it needs, and no others."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

EXPORTING = (
    "build",
    "frontends.onnx",
    "frontends.pytorch",
    "frontends.tflite",
    "passes",
    "pipeline",
)
LISTING = "import sys, {}; print(*(name for name in sys.modules if name.startswith('firmwright.')))"


def modules_of(verb: str) -> set[str]:
    """Return the modules of firmwright that the verb imports before it runs."""
    command = [sys.executable, "-P", "-c", LISTING.format(f"firmwright.cli.{verb}")]
    printed = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60
    )
    return set(printed.stdout.replace("firmwright.", "").split())


@pytest.mark.parametrize("verb", ["inspect", "ops"])
def test_a_verb_that_reads_does_not_load_the_compiler(verb: str) -> None:
    names = modules_of(verb)
    stages = {"build", "codegen", "device", "lower", "package", "choose", "usmp"}
    assert names & stages == set()
    assert names & {"passes.registry", "pipeline.compilation"} == set()
    assert not [name for name in names if name.startswith("schedules.helium.")]


def test_the_list_of_operators_loads_no_reader_and_no_conformance_cases() -> None:
    names = modules_of("ops")
    assert names & {"conformance", "frontends.tflite.reader", "schedules"} == set()


def test_a_compilation_does_not_load_what_builds_and_runs_firmware() -> None:
    names = modules_of("compile")
    assert names & {"conformance", "device", "flows.samples", "oracle", "tune"} == set()
    assert names & {"build.scons_runner", "flows.board.model_session"} == set()


@pytest.mark.parametrize("package", EXPORTING)
def test_every_name_that_a_package_declares_is_there(package: str) -> None:
    module = importlib.import_module(f"firmwright.{package}")
    assert module.__file__
    declared = [
        (str(node.module), alias.name)
        for node in ast.walk(ast.parse(Path(module.__file__).read_text()))
        if isinstance(node, ast.ImportFrom)
        and str(node.module).startswith(module.__name__)
        for alias in node.names
    ]
    assert declared
    for home, name in declared:
        assert getattr(module, name) is getattr(importlib.import_module(home), name)


def test_a_name_that_a_package_does_not_declare_is_an_attribute_error() -> None:
    module = importlib.import_module("firmwright.pipeline")
    with pytest.raises(AttributeError, match="has no attribute 'absent'"):
        _ = module.absent
