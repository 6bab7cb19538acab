"""The exported C on emulated cores has TFLM's probabilities, in little RAM and time."""

from pathlib import Path

import numpy as np
import pytest

from firmwright.base.dtypes import Array
from tests.extensions.wake_words.boards import (
    RUN,
    build_firmware,
    count_run,
    image_words,
    listen_on,
)
from tests.extensions.wake_words.listening import feature_rows, listeners, sounds
from tests.extensions.wake_words.test_component import require_front_end

_RAM_LIMIT = 16 * 1024
_SOUND_BYTES = 2 * RUN
"""The buffer of the test's program."""
_RUN_S = 0.03
_CLOCK_HZ = 80_000_000
_BOARDS = [
    pytest.param("qemu-riscv32-virt", marks=pytest.mark.qemu("riscv32")),
    pytest.param("qemu-xtensa-lx106", marks=pytest.mark.qemu("xtensa")),
    pytest.param("microbit", marks=pytest.mark.qemu("arm")),
    pytest.param("mps2-an386", marks=pytest.mark.qemu("arm")),
    pytest.param("mps3-an547", marks=pytest.mark.qemu("arm")),
]


def _expected(manifests: list[Path], sound: Array) -> tuple[Array, Array]:
    """Return TFLM's probabilities and the bits of detections, a row for each run."""
    words = listeners(manifests)
    probabilities: list[list[int]] = []
    detections: list[int] = []
    bits = 0
    for number, row in enumerate(feature_rows(sound), start=1):
        for index, word in enumerate(words):
            bits |= word.hears(row) << index
        if number % 3 == 0:
            probabilities.append([word.recent[word.last] for word in words])
            detections.append(bits)
            bits = 0
    return np.array(probabilities, np.uint8), np.array(detections, np.uint8)


@pytest.mark.parametrize("board", _BOARDS[:2])
def test_a_word_on_a_core_has_the_probabilities_of_tflm(
    board: str, manifests: list[Path], tmp_path: Path
) -> None:
    require_front_end()
    word, sound = manifests[-1:], sounds(4, seed=4)
    image = build_firmware(word, board, tmp_path)
    heard = listen_on(image, sound)
    probabilities, detections = _expected(word, sound)
    assert np.array_equal(heard.probabilities, probabilities)
    assert np.array_equal(heard.heard, detections)


@pytest.mark.deep
@pytest.mark.parametrize("board", _BOARDS)
def test_a_minute_of_three_words_on_a_core(
    board: str, manifests: list[Path], tmp_path: Path
) -> None:
    """All probabilities are TFLM's; the figures are those of the page."""
    require_front_end()
    sound = sounds(60, seed=5)
    image = build_firmware(manifests, board, tmp_path)
    heard = listen_on(image, sound)
    probabilities, detections = _expected(manifests, sound)
    assert len(probabilities) == len(sound) // RUN
    assert np.array_equal(heard.probabilities, probabilities)
    assert np.array_equal(heard.heard, detections)
    assert image_words(image) == len(manifests)
    assert not image.firmware_stack.unbounded
    assert not image.firmware_stack.unknown
    ram = image.model_ram_bytes - _SOUND_BYTES
    stack = image.firmware_stack.size_bytes
    assert ram + stack < _RAM_LIMIT
    run = count_run(image)
    share = (run.cycles or run.instructions) / (_CLOCK_HZ * _RUN_S)
    print(
        f"\n{board}: {len(probabilities)} runs, RAM {ram:,}, stack {stack}, "
        f"flash {image.model_flash_bytes:,}; in 30 ms at most "
        f"{heard.instructions.max():,} instructions; on noise "
        f"{run.instructions:,} instructions, {run.cycles} cycles, {share:.1%} of 80 MHz"
    )
    assert share < 0.5
