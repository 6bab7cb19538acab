"""Fixtures of the acceptance tests: models, cached compilations, and their firmware."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from firmwright.artifacts import Image, ImageSizes, StackUsage
from firmwright.flows.board.model_session import ModelSession, open_session
from firmwright.flows.model.model import Model, load_model
from firmwright.pipeline import Compilation, Options, compile_model

ROOT = Path(__file__).resolve().parents[2]
DIGITS = "digits"
FILES = {
    "ad": "ad01_int8.tflite",
    "ic": "pretrainedResnet_quant.tflite",
    "kws": "kws_ref_model.tflite",
    "vww": "vww_96_int8.tflite",
    "ww": "str_ww_ref_model.tflite",
    "ad_float": "ad01_fp32.tflite",
    "ic_float": "pretrainedResnet.tflite",
    "kws_float": "kws_ref_model_float32.tflite",
    "vww_float": "vww_96_float.tflite",
}
"""The models of MLPerf Tiny by the names that tests use."""

Compile = Callable[..., Compilation]


@pytest.fixture
def model_file(
    digits_path: Path, model_path: Callable[[str], Path]
) -> Callable[[str], Path]:
    """Path of `digits` or an MLPerf Tiny model by short name; skips if absent."""
    return lambda name: digits_path if name == DIGITS else model_path(FILES[name])


@pytest.fixture
def compiled(model_file: Callable[[str], Path]) -> Compile:
    """`compiled("kws", board=...)`: that model, compiled once per worker."""

    def compile_once(model: str, /, **options: Any) -> Compilation:
        return _compiled(model_file(model), tuple(sorted(options.items())))

    return compile_once


@pytest.fixture
def digits(compiled: Compile) -> Compilation:
    """The example for a Cortex-M4."""
    return compiled("digits", board="mps2-an386")


@cache
def _loaded(path: Path) -> Model:
    return load_model(path)


@cache
def _compiled(path: Path, options: tuple[tuple[str, Any], ...]) -> Compilation:
    model = _loaded(path)
    return compile_model(model.module, Options(**dict(options)), source=model.source)


@pytest.fixture
def python() -> Callable[..., str]:
    """`python(["-m", "firmwright", ...])`: stdout of a Python with this checkout."""
    return run_python


def run_python(
    words: Sequence[str | Path], environment: Mapping[str, str] | None = None
) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "toolchain"),
            **(environment or {}),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def quickly(tmp_path: Path) -> Callable[[Compilation], ModelSession]:
    """Opens the model's C as a library in this process, within about a second."""

    def opened(what: Compilation) -> ModelSession:
        folder = tmp_path / what.model_id
        what.tree.write(folder)
        library = folder / "libmodel.so"
        sources = sorted(str(file) for file in (folder / "model").glob("*.c"))
        command = [
            "gcc",
            "-std=c99",
            "-O1",
            "-ffp-contract=off",
            "-fPIC",
            "-shared",
            *sources,
        ]
        done = subprocess.run(
            [*command, "-o", str(library), "-lm"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        none = StackUsage("", 0, ())
        image = Image(
            board=what.board.name,
            variant="release",
            directory=folder,
            elf=library,
            bin=None,
            hex=None,
            library=library,
            sizes=ImageSizes((), (), ()),
            model_flash_bytes=0,
            model_ram_bytes=0,
            stack=none,
            firmware_stack=none,
        )
        return open_session(what, in_process=True, image=image)

    return opened
