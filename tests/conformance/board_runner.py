"""Run kernels as firmware in QEMU and compare every result with the oracle.

Inputs are generated on the device and results return as checksums. The program and its
constants must remain unchanged.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from firmwright.artifacts import Image, SourceTree
from firmwright.base.errors import DeviceError, DoesNotFitError
from firmwright.boards import Compiler, load_board
from firmwright.build import build_project
from firmwright.build.project_files import project_files
from firmwright.device.errors import Timeouts
from firmwright.device.session import Session
from firmwright.device.transport_selection import open_transport
from tests.conformance.expected_results import Expected
from tests.conformance.kernel_batches import VERDICTS, Batch, Kernel, emit_batch

HERE = Path(__file__).parent
FLIPS = (0, 255)
RUN_TIMEOUT_S = 300.0


def build(
    batch: Batch, board: str, folder: Path, compiler: Compiler | None = None
) -> Image:
    """Build the firmware of a batch; DoesNotFitError if it is too large."""
    known = load_board(board)
    files: dict[str, str | bytes] = {
        f"model/{name}": text for name, text in batch.files.items()
    }
    for name in ("harness.c", "harness.h"):
        files[f"model/{name}"] = (HERE / name).read_bytes()
    # C compilers treat address 0 as null, and kernels do not overwrite the vectors.
    start = f"#define CONFORM_PROGRAM_START 0x{known.flash.start + 16:x}u\n"
    files["firmware/fwr_app.c"] = start + (HERE / "board_app.c").read_text()
    SourceTree(files).merged(project_files(known)).write(folder)
    return build_project(folder, "release", compiler=compiler)


def failures_on_board(
    batch: Batch,
    expected: Expected,
    samples: Sequence[int],
    board: str,
    folder: Path,
    compiler: Compiler | None = None,
) -> Iterator[str]:
    """Return a message per failed run; images that do not fit are split in two."""
    try:
        image = build(batch, board, folder / "whole", compiler)
    except DoesNotFitError:
        assert len(batch.kernels) > 1, batch.describe(0)
        middle = len(batch.kernels) // 2
        for name, part in (
            ("first", batch.kernels[:middle]),
            ("second", batch.kernels[middle:]),
        ):
            half = emit_batch(batch.cases, part)
            yield from failures_on_board(
                half, expected, samples, board, folder / name, compiler
            )
        return
    yield from _wrong(batch, image, expected, samples)


def _wrong(
    batch: Batch, image: Image, expected: Expected, samples: Sequence[int]
) -> Iterator[str]:
    line = open_transport(load_board(image.board), image.elf)
    with Session(line, timeouts=Timeouts(run_s=RUN_TIMEOUT_S)) as session:
        program = _asked(session, 0, 0, 0, 0)[0]
        for sample in samples:
            for flip in FLIPS:
                for index, (verdict, crc) in _answers(session, batch, sample, flip):
                    label = f"{image.board}, {batch.describe(index)}, sample {sample}, pattern {flip}"
                    if verdict:
                        yield f"{label}: {verdict}"
                    elif not _is_expected(batch.kernels[index], expected, sample, crc):
                        yield f"{label}: another result"
        if _asked(session, 0, 0, 0, 0)[0] != program:
            yield f"{image.board}: the program or its constants have changed"


def _is_expected(kernel: Kernel, expected: Expected, sample: int, crc: int) -> bool:
    results = expected.of(kernel.profiles, kernel.layer, sample)
    return all(zlib.crc32(result.tobytes()) == crc for result in results)


def _asked(session: Session, sample: int, flip: int, first: int, end: int) -> list[int]:
    request = np.array([sample, flip, first, end], np.uint32)
    return [int(value) for value in session.run({"request": request})["answers"]]


def _answers(
    session: Session, batch: Batch, sample: int, flip: int
) -> Iterator[tuple[int, tuple[str, int]]]:
    """Return the verdict of each kernel and the checksum of its result."""
    count = len(batch.kernels)
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
