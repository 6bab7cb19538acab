"""The exported C on emulated cores has TFLM's probabilities, in little RAM and time."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from firmwright.base.dtypes import Array
from firmwright.boards import Board, load_board
from firmwright.targets.run_time import core_timing_of, run_time
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


@dataclass(frozen=True, slots=True)
class Core:
    """A core, the board that emulates it, and a chip whose timing it gets."""

    name: str
    board: str
    chip: str = ""

    @property
    def timed_board(self) -> Board:
        """The board at 80 MHz, with the pipeline of the chip."""
        board = load_board(self.board).at_clock(_CLOCK_HZ)
        pipeline = load_board(self.chip).pipeline if self.chip else board.pipeline
        return replace(board, pipeline=pipeline)


_ESP32_C3 = Core("RV32IMC (ESP32-C3)", "qemu-riscv32-virt-imc", "esp32c3")
_ESP8266 = Core("Xtensa LX106 (ESP8266)", "qemu-xtensa-lx106")
_FAST = [
    pytest.param(_ESP32_C3, marks=pytest.mark.qemu("riscv32")),
    pytest.param(_ESP8266, marks=pytest.mark.qemu("xtensa")),
]
_ALL = [
    *_FAST,
    pytest.param(Core("Cortex-M0", "microbit"), marks=pytest.mark.qemu("arm")),
    pytest.param(Core("Cortex-M4", "mps2-an386"), marks=pytest.mark.qemu("arm")),
    pytest.param(Core("Cortex-M55", "mps3-an547"), marks=pytest.mark.qemu("arm")),
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


@pytest.mark.sampled(2)
@pytest.mark.parametrize("core", _FAST, ids=lambda core: core.board)
def test_a_word_on_a_core_has_the_probabilities_of_tflm(
    core: Core, manifests: list[Path], tmp_path: Path
) -> None:
    require_front_end()
    word, sound = manifests[-1:], sounds(4, seed=4)
    image = build_firmware(word, core.board, tmp_path, chip=core.chip)
    heard = listen_on(image, sound)
    probabilities, detections = _expected(word, sound)
    assert np.array_equal(heard.probabilities, probabilities)
    assert np.array_equal(heard.heard, detections)


@pytest.mark.deep
@pytest.mark.parametrize("core", _ALL, ids=lambda core: core.board)
def test_a_minute_of_three_words_on_a_core(
    core: Core, manifests: list[Path], tmp_path: Path
) -> None:
    """All probabilities are TFLM's; the printed row is one of the page's table."""
    require_front_end()
    sound = sounds(60, seed=5)
    image = build_firmware(manifests, core.board, tmp_path, chip=core.chip)
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
    board = core.timed_board
    timing = core_timing_of(board)
    cycles = count_run(image, timing).cycles
    assert timing is not None
    assert cycles is not None
    time = run_time(cycles, board)
    assert time is not None
    assert time.most_ms is not None
    share = [ms / 1e3 / _RUN_S for ms in (time.least_ms, time.most_ms)]
    cells = [f"{core.name}, {core.board}", f"{ram:,}", f"{stack}"]
    cells += [f"{image.model_flash_bytes:,}", f"{heard.instructions.max():,}"]
    cells += [f"{cycles:,}", f"{share[0]:.0%} to {share[1]:.0%}", time.origin.value]
    print(f"\n| {' | '.join(cells)} |")
    assert share[1] < 1
