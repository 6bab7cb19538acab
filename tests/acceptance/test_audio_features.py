"""Audio features on emulated boards: 1,000 random seconds equal numpy bit for bit."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firmwright.audio import Features
from firmwright.boards import load_board
from firmwright.build import build_project
from firmwright.cli.main import main
from firmwright.device.transport_selection import open_transport
from firmwright.flows.model.model import save_module

SOURCE = Path(__file__).with_name("features_main.c")
SECONDS = 1_000
TIMEOUT_S = 400.0
Words = np.ndarray[Any, np.dtype[np.uint32]]


def mixed(x: Words) -> Words:
    """Return the same pseudorandom numbers as the program."""
    x = (x ^ x >> 16) * np.uint32(0x7FEB352D)
    x = (x ^ x >> 15) * np.uint32(0x846CA68B)
    return x ^ x >> 16


def expected_sum() -> int:
    n = np.arange(SECONDS * 16_000, dtype=np.uint32)
    loud = (mixed(n) >> 16).astype(np.uint16).view(np.int16)
    samples = loud >> (n // 16_000 % 16).astype(np.int16)
    rows = Features().compute(samples).reshape(-1)
    assert len(np.unique(rows)) > 100
    terms = mixed(np.arange(len(rows), dtype=np.uint32)) * (
        rows.astype(np.int32) + 128
    ).astype(np.uint32)
    return int(terms.sum(dtype=np.uint32))


@pytest.mark.deep
@pytest.mark.parametrize(
    "board",
    [
        pytest.param("mps2-an386", marks=pytest.mark.qemu("arm")),
        pytest.param("mps3-an547", marks=pytest.mark.qemu("arm")),
        pytest.param("qemu-riscv32-virt", marks=pytest.mark.qemu("riscv32")),
    ],
)
def test_rows_of_a_thousand_seconds(board: str, tmp_path: Path) -> None:
    model, out = tmp_path / "audio_features.fwir", tmp_path / "project"
    save_module(Features().model().module, model)
    words = ["compile", str(model), "--board", board, "--main", str(SOURCE)]
    assert main([*words, "-o", str(out)]) == 0
    transport = open_transport(load_board(board), build_project(out).elf)
    text, deadline = b"", time.monotonic() + TIMEOUT_S
    try:
        while not text.endswith(b"\r\n"):
            assert time.monotonic() < deadline, text
            text += transport.read(4096, 1.0)
    finally:
        transport.close()
    assert int(text, 16) == expected_sum()
