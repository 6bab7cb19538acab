"""Chains of sensors' samples on emulated boards equal numpy bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from tests.unit.sensors.chains import CHAINS, recordings

WINDOWS = 1_000
WITH_FPU = pytest.param("mps2-an386", marks=pytest.mark.qemu("arm"))
OTHERS = [
    pytest.param("mps3-an547", marks=pytest.mark.qemu("arm")),
    pytest.param("qemu-riscv32-virt", marks=pytest.mark.qemu("riscv32")),
    pytest.param("microbit", marks=pytest.mark.qemu("arm")),
]


FLUSHED = 2.0**-55
"""More than results differ if Helium takes numbers below 2^-126, as of squares, as 0."""


def equals_numpy(board: str, name: str, windows: int) -> bool:
    chain = CHAINS[name]
    compiled = compile_for(chain.model(), board=board)
    samples = recordings(chain, windows)
    with open_session(compiled) as session:
        shape = (windows, 1, chain.samples, chain.channels)
        rows = np.asarray(session.run(samples.reshape(shape)))
    expected = chain.compute(samples)
    rows = rows.reshape(expected.shape)
    if board == "mps3-an547":
        tiny = np.maximum(np.abs(rows), np.abs(expected)) < FLUSHED
        rows, expected = np.where(tiny, 0, rows), np.where(tiny, 0, expected)
    return np.array_equal(rows, expected)


@pytest.mark.parametrize("board", [WITH_FPU])
def test_some_windows(board: str) -> None:
    assert equals_numpy(board, "integers", 8)


@pytest.mark.deep
@pytest.mark.parametrize("board", [WITH_FPU, *OTHERS])
@pytest.mark.parametrize("name", ["stream", "integers", "windows"])
def test_a_thousand_windows(board: str, name: str) -> None:
    assert equals_numpy(board, name, WINDOWS)
