"""Runs kernels as firmware in QEMU, dozens in an image, and compares every result with the oracle.

In: kernels, a board, what is expected. Out: a line for each run that is wrong. Inputs are drawn on
the device, results come back as checksums. The program and its constants must stay as they were.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from kernels import VERDICTS, Batch, Kernel, emitted
from oracles import Expected

from firmwright.artifacts import Compiler, Image, SourceTree
from firmwright.base.errors import DeviceError, DoesNotFitError
from firmwright.boards import load_board
from firmwright.build import build_project, write_project
from firmwright.device import Session, Timeouts, open_transport

HERE = Path(__file__).parent
FLIPS = (0, 255)
RUN_TIMEOUT_S = 300.0


def build(made: Batch, board: str, folder: Path, compiler: Compiler = "gcc") -> Image:
    """The firmware of a batch. DoesNotFitError where it is too large."""
    known = load_board(board)
    files: dict[str, str | bytes] = {f"model/{name}": text for name, text in made.files.items()}
    for name in ("harness.c", "harness.h"):
        files[f"model/{name}"] = (HERE / name).read_bytes()
    # Address 0 is no pointer to a C compiler; the vectors are not what a kernel overwrites.
    start = f"#define CONFORM_PROGRAM_START 0x{known.flash.start + 16:x}u\n"
    files["firmware/fwr_app.c"] = start + (HERE / "board_app.c").read_text()
    write_project(known, SourceTree(files), folder)
    return build_project(folder, "release", compiler=compiler)


def wrong_on(
    made: Batch,
    expected: Expected,
    samples: Sequence[int],
    board: str,
    folder: Path,
    compiler: Compiler = "gcc",
) -> Iterator[str]:
    """A line for each run that is not as it must be; images that do not fit are cut in two."""
    try:
        image = build(made, board, folder / "whole", compiler)
    except DoesNotFitError:
        assert len(made.kernels) > 1, made.said(0)
        middle = len(made.kernels) // 2
        for name, part in (("first", made.kernels[:middle]), ("second", made.kernels[middle:])):
            half = emitted(made.cases, part)
            yield from wrong_on(half, expected, samples, board, folder / name, compiler)
        return
    yield from _wrong(made, image, expected, samples)


def _wrong(made: Batch, image: Image, expected: Expected, samples: Sequence[int]) -> Iterator[str]:
    line = open_transport(load_board(image.board), image.elf)
    with Session(line, timeouts=Timeouts(run_s=RUN_TIMEOUT_S)) as session:
        program = _asked(session, 0, 0, 0, 0)[0]
        for sample in samples:
            for flip in FLIPS:
                for index, (verdict, crc) in _answers(session, made, sample, flip):
                    who = f"{image.board}, {made.said(index)}, sample {sample}, pattern {flip}"
                    if verdict:
                        yield f"{who}: {verdict}"
                    elif not _is_expected(made.kernels[index], expected, sample, crc):
                        yield f"{who}: another result"
        if _asked(session, 0, 0, 0, 0)[0] != program:
            yield f"{image.board}: the program or its constants have changed"


def _is_expected(kernel: Kernel, expected: Expected, sample: int, crc: int) -> bool:
    results = expected.of(kernel.profiles, kernel.layer, sample)
    return all(zlib.crc32(result.tobytes()) == crc for result in results)


def _asked(session: Session, sample: int, flip: int, first: int, end: int) -> list[int]:
    request = np.array([sample, flip, first, end], np.uint32)
    return [int(value) for value in session.run({"request": request})["answers"]]


def _answers(
    session: Session, made: Batch, sample: int, flip: int
) -> Iterator[tuple[int, tuple[str, int]]]:
    """What was found about each kernel, and its result's checksum."""
    count = len(made.kernels)
    try:
        found = _asked(session, sample, flip, 0, count)
    except DeviceError:  # one of them faults: ask for each, to know which
        session.reset()
        for index in range(count):
            try:
                found = _asked(session, sample, flip, index, index + 1)
                yield index, (VERDICTS[found[2 * index]], found[2 * index + 1])
            except DeviceError as error:
                yield index, (str(error), 0)
                session.reset()
        return
    for index in range(count):
        yield index, (VERDICTS[found[2 * index]], found[2 * index + 1])
