"""Audio features on emulated boards equal numpy bit for bit.

The sounds are recorded speech and, with --deep, 1,000 random seconds.
"""

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
from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import save_module
from tests.recordings import Samples, recorded_sound

SOURCE = Path(__file__).with_name("features_main.c")
SECONDS = 1_000
PART = 700 * Features().hop  # samples of recordings that a program has
TIMEOUT_S = 900.0
BOARDS = [
    pytest.param("mps2-an386", marks=pytest.mark.qemu("arm")),
    pytest.param("mps3-an547", marks=pytest.mark.qemu("arm")),
    pytest.param("qemu-riscv32-virt", marks=pytest.mark.qemu("riscv32")),
]
Words = np.ndarray[Any, np.dtype[np.uint32]]


def mixed(x: Words) -> Words:
    """Return the same pseudorandom numbers as the program."""
    x = (x ^ x >> 16) * np.uint32(0x7FEB352D)
    x = (x ^ x >> 15) * np.uint32(0x846CA68B)
    return x ^ x >> 16


def random_seconds() -> Samples:
    n = np.arange(SECONDS * 16_000, dtype=np.uint32)
    loud = (mixed(n) >> 16).astype(np.uint16).view(np.int16)
    return np.asarray(loud >> (n // 16_000 % 16).astype(np.int16), np.int16)


def sum_of_rows(rows: np.ndarray[Any, Any]) -> int:
    """Return the sum that the program prints for rows of int8."""
    flat = rows.reshape(-1).astype(np.int32) + 128
    terms = mixed(np.arange(flat.size, dtype=np.uint32)) * flat.astype(np.uint32)
    return int(terms.sum(dtype=np.uint32))


def recorded_text(sound: Samples | None) -> str:
    """Return the C text before the program with which it hears `sound`."""
    if sound is None:
        return ""
    array = f"static const int16_t recorded[] = {{{','.join(map(str, sound))}}};"
    hops = f"#define RECORDED_HOPS {len(sound) // Features().hop}u"
    return f"#include <stdint.h>\n{hops}\n{array}\n"


def sum_on_board(board: str, folder: Path, sound: Samples | None = None) -> int:
    """Return what the program prints for a sound, or for the random seconds."""
    source = folder / "main.c"
    source.write_text(f"{recorded_text(sound)}{SOURCE.read_text('utf-8')}", "utf-8")
    model, out = folder / "audio_features.fwir", folder / "project"
    save_module(Features().model().module, model)
    words = ["compile", str(model), "--board", board, "--main", str(source)]
    assert main([*words, "-o", str(out)]) == 0
    transport = open_transport(load_board(board), build_project(out).elf)
    text, deadline = b"", time.monotonic() + TIMEOUT_S
    try:
        while not text.endswith(b"\r\n"):
            assert time.monotonic() < deadline, text
            text += transport.read(4096, 1.0)
    finally:
        transport.close()
    return int(text, 16)


@pytest.mark.parametrize("board", BOARDS)
def test_rows_of_recorded_speech(board: str, tmp_path: Path) -> None:
    sound = recorded_sound(Features().hop)
    # One board has 512 KB of flash.
    for part in np.split(sound, range(PART, len(sound), PART)):
        expected = sum_of_rows(Features().compute(part))
        assert sum_on_board(board, tmp_path, part) == expected


@pytest.mark.deep
@pytest.mark.parametrize("board", BOARDS)
def test_rows_of_a_thousand_seconds(board: str, tmp_path: Path) -> None:
    rows = Features().compute(random_seconds())
    assert len(np.unique(rows)) > 100
    expected = sum_of_rows(rows)
    assert sum_on_board(board, tmp_path) == expected


@pytest.mark.deep
@pytest.mark.host_c
def test_rows_of_a_thousand_seconds_on_the_host() -> None:
    sound, compiled = random_seconds(), compile_for(Features().model())
    with open_session(compiled, in_process=True) as session:
        rows = np.asarray(session.run(sound.reshape(-1, 1, Features().hop)))
    assert sum_of_rows(rows) == sum_of_rows(Features().compute(sound))
