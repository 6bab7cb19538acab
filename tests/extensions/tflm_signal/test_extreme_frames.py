"""Transforms of frames that wrap, as firmware, are those of TFLM."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.dtypes import INT16, Array
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model
from firmwright.flows.samples.sample_batches import SampleBatch
from firmwright.flows.verify.verification import verify
from firmwright.pipeline import load_module_bytes
from tests.state.model_writer import ModelFile

LENGTH = 128


def transform() -> bytes:
    file = ModelFile()
    main = file.graph("main")
    x = main.input("x", "int16", (LENGTH,))
    y = main.tensor("y", "int16", (LENGTH + 2,))
    main.op("custom:SignalRfft", [x], [y], T=7, fft_length=LENGTH)
    main.outputs(y)
    return file.data()


def extreme_frames() -> list[Array]:
    """Return square waves of several frequencies and phases, and random extremes."""
    rng = np.random.default_rng(3)
    time = np.arange(LENGTH)
    signs = [rng.random(LENGTH) - 0.5 for _ in range(8)]
    for cycles in (0, 1, 3, LENGTH // 4, LENGTH // 4 + 1, LENGTH // 2 - 1):
        for phase in (-1, 1, 2):
            signs.append(np.sin(2 * np.pi * cycles * time / LENGTH + phase))
    values = (INT16.max, INT16.min)
    return [np.where(sign >= 0, *values).astype(np.int16) for sign in signs]


@pytest.mark.deep
@pytest.mark.qemu("arm", "riscv32")
@pytest.mark.parametrize("board", ["mps2-an386", "mps3-an547", "qemu-riscv32-virt-v"])
def test_extreme_frames_match_tflm(board: str) -> None:
    data = transform()
    module = load_module_bytes(data, "transform.tflite")
    compiled = compile_for(Model(module, data), board, numerics="tflm")
    samples = tuple({"x": frame} for frame in extreme_frames())
    result = verify(compiled, batch=SampleBatch(samples))
    assert result.exact
    assert result.values == len(samples) * (LENGTH + 2)
