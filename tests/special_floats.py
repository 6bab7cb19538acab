"""Inputs with NaN, infinities, zeros and huge numbers, and the boards that run them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

SPECIAL = np.array(
    [np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0, 3e38, -3e38, 89, -104], np.float32
)
BOARDS = [
    pytest.param("host", marks=pytest.mark.host_c),
    pytest.param("mps2-an386", marks=pytest.mark.qemu),
    pytest.param("mps3-an547", marks=pytest.mark.qemu),
    pytest.param("mps2-an385", marks=[pytest.mark.qemu, pytest.mark.deep]),
    pytest.param(
        "qemu-riscv32-virt", marks=[pytest.mark.qemu("riscv32"), pytest.mark.deep]
    ),
    pytest.param(
        "qemu-riscv32-virt-vf",
        marks=[pytest.mark.qemu("riscv32"), pytest.mark.zig, pytest.mark.deep],
    ),
]

MANY_OPERATORS = [
    pytest.param("host", marks=pytest.mark.host_c),
    *(
        pytest.param(*board.values, marks=[*board.marks, pytest.mark.deep])
        for board in BOARDS[1:]
    ),
]
"""The boards of tests with dozens of operators: those in emulators take a minute."""
"""A board of each kind of float arithmetic."""


def draw_special(
    shape: Sequence[int], share: int, seed: int = 1
) -> NDArray[np.float32]:
    """Return random numbers, of which one in `share` is special."""
    rng = np.random.default_rng(seed)
    values = (rng.normal(size=shape) * 2).astype(np.float32)
    flat = values.reshape(-1)
    count = max(1, flat.size // share)
    flat[rng.permutation(flat.size)[:count]] = rng.choice(SPECIAL, count)
    return values
