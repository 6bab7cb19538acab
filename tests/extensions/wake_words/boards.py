"""An exported package in the firmware of an emulated board, which listens to sound."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from firmwright.artifacts import Image, SourceTree
from firmwright.base.cache_folder import cache_root
from firmwright.base.dtypes import Array
from firmwright.boards import load_board
from firmwright.build import build_project
from firmwright.build.disassembler import disassemble
from firmwright.build.project_files import project_files
from firmwright.cli.main import main
from firmwright.device.instruction_counter import (
    InstructionCounter,
    build_counter_plugin,
)
from firmwright.device.qemu_process import QemuMemoryTransport
from firmwright.device.transport import Transport
from firmwright.device.transport_selection import open_transport
from firmwright.flows.measure.call_attribution import CodeIndex
from firmwright.flows.measure.instruction_counts import (
    InstructionShare,
    sum_of_counts,
)
from firmwright.package.custom_main import use_custom_main
from firmwright.package.project_writer import write_project
from firmwright.targets.core_timing import CoreTiming
from tests.extensions.wake_words.listening import STEP

RUN = 3 * STEP
"""The samples between two runs of each model."""
_MAIN = Path(__file__).with_name("listen_main.c")
_SOUND, _COUNTED, _GO = "listen_sound", "listen_30_ms", b"\n"
_COUNTED_RUNS = 3
_TIMEOUT_S = 120.0


def build_firmware(
    manifests: Sequence[Path], board: str, folder: Path, *, chip: str = ""
) -> Image:
    """Export the words for a chip of the same core, and build a board's firmware."""
    package = folder / "package"
    words = ["export", "--format", "makefile", *map(str, manifests)]
    assert main([*words, "--board", chip or board, "-o", str(package)]) == 0
    sources: dict[str, str | bytes] = {}
    for file in (package / "model").iterdir():
        sources[f"model/{file.name}"] = file.read_text(encoding="utf-8")
    project = project_files(load_board(board)).merged(SourceTree(sources))
    project = use_custom_main(project, _MAIN.read_text(encoding="utf-8"))
    write_project(project, folder / "project")
    return build_project(folder / "project")


@dataclass(frozen=True, slots=True)
class Heard:
    """Probabilities and detections of each run on a board.

    Attributes:
        probabilities: Of each word, uint8 [runs, words].
        heard: The bits of the words that were heard, [runs].
        instructions: Of a run by the board's counter, [runs].
    """

    probabilities: Array
    heard: Array
    instructions: Array


def listen_on(image: Image, sound: Array) -> Heard:
    """Return the probabilities and detections of firmware in `sound`, int16."""
    symbols = {symbol.name: symbol for symbol in image.sizes.symbols}
    buffer, size = symbols[_SOUND].address, 4 + image_words(image) + 1
    board = load_board(image.board)
    transport = open_transport(board, image.elf, through_memory=True)
    assert isinstance(transport, QemuMemoryTransport)
    answers = bytearray()
    try:
        _read(transport, 1)
        for start in range(0, len(sound) - RUN + 1, RUN):
            part = sound[start : start + RUN].astype("<i2")
            transport.write_memory(buffer, part.tobytes())
            transport.write(_GO)
            answers += _read(transport, size)
    finally:
        transport.close()
    rows = np.frombuffer(answers, np.uint8).reshape(-1, size)
    ticks = rows[:, :4].copy().view("<u4").ravel().astype(np.int64)
    up, down = board.counter.scale
    return Heard(rows[:, 4:-1], rows[:, -1], ticks * up // down)


def count_run(image: Image, timing: CoreTiming | None) -> InstructionShare:
    """Return the instructions, and by a timing modeled cycles, of a run on noise."""
    board = load_board(image.board)
    code = CodeIndex(image, disassemble(board, image.elf))
    root, plugin = (
        code.function(_COUNTED),
        build_counter_plugin(cache_root() / "plugins"),
    )
    with InstructionCounter(plugin, code.start(root), root.size_bytes) as counter:
        transport = open_transport(board, image.elf, plugin=counter.argument)
        try:
            _read(transport, 1)
            for _ in range(_COUNTED_RUNS):
                transport.write(_GO)
                _read(transport, image_words(image) + 5)
        finally:
            transport.close()
        cells = counter.read()
    end = code.start(root) + root.size_bytes
    cells = tuple(
        cell
        for cell in cells
        # What follows the return has the return as its site.
        if code.start(root) <= cell.address < end or code.at(cell.site).kind == "call"
    )
    return sum_of_counts(cells, code, timing)


def _read(transport: Transport, size: int) -> bytes:
    answer = b""
    while len(answer) < size:
        received = transport.read(size - len(answer), _TIMEOUT_S)
        assert received, f"no answer after {answer!r}"
        answer += received
    return answer


def image_words(image: Image) -> int:
    """Return the number of words, which the exported header states."""
    header = image.directory / "model/wake_words.h"
    line = next(
        line
        for line in header.read_text(encoding="utf-8").splitlines()
        if line.startswith("#define WAKE_WORDS_COUNT ")
    )
    return int(line.split()[-1].rstrip("u"))
