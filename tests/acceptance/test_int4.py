"""Int4 models equal LiteRT with less flash and hardly more instructions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import firmwright as fw
from firmwright.flows.measure.profiling import profile
from tests.ops.int4_model import with_int4_weights

MODELS = ("kws_ref_model", "pretrainedResnet_quant")
BOARDS = ("mps2-an386", "mps3-an547")
PERCENT_MAX = 105
"""Maximum instructions, in percent of those of the int8 model."""


def narrow_file(source: Path, folder: Path) -> Path:
    file = folder / f"{source.stem}_int4.tflite"
    file.write_bytes(with_int4_weights(source.read_bytes()))
    return file


def constant_bytes(compiled: fw.Compilation) -> int:
    return sum(constant.size_bytes for constant in compiled.module.constants.values())


@pytest.mark.sampled(3)
@pytest.mark.qemu("arm")
@pytest.mark.parametrize("board", BOARDS)
def test_int4_weights_are_exact(board: str, digits_path: Path, tmp_path: Path) -> None:
    wide, narrow = (
        fw.compile(fw.load(file), board=board)
        for file in (digits_path, narrow_file(digits_path, tmp_path))
    )
    if board == "mps3-an547":  # on mps2-an386 the layers are too small
        assert constant_bytes(narrow) <= constant_bytes(wide) - 1000
    assert fw.verify(narrow, samples=2).exact


@pytest.mark.deep
@pytest.mark.models
@pytest.mark.qemu("arm")
@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("model", MODELS)
def test_int4_weights_cost_hardly_more_instructions(
    model: str, board: str, model_path: Callable[[str], Path], tmp_path: Path
) -> None:
    source = model_path(f"{model}.tflite")
    wide, narrow = (
        fw.compile(fw.load(file), board=board)
        for file in (source, narrow_file(source, tmp_path))
    )
    assert fw.verify(narrow, samples=3).exact
    assert 100 * profile(narrow).total <= PERCENT_MAX * profile(wide).total
    # The goal `balanced` packs few layers of the M4.
    most = 0.75 if board == "mps3-an547" else 1
    assert constant_bytes(narrow) < most * constant_bytes(wide)
