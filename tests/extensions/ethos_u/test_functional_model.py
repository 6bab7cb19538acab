"""The model of the Ethos-U: errors, arithmetic, and networks that Vela compiled."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.extensions.ethos_u.command_streams import (
    MODEL,
    WARNINGS,
    Job,
    JobResult,
    Stream,
    driver_payload,
    run,
)

pytestmark = pytest.mark.host_c


def run_stream(
    program: Path, stream: Stream, *regions: bytes, product: int = 0
) -> JobResult:
    return run(program, [Job(stream.payload(product), regions)])[0]


@pytest.mark.parametrize("compiler", ["gcc", "clang", "arm-none-eabi-gcc"])
def test_a_compiler_reports_no_warning(compiler: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"needs {compiler}")
    files = map(str, MODEL.glob("*.c"))
    subprocess.run(
        [compiler, "-std=c99", *WARNINGS, "-fsyntax-only", *files], check=True
    )


# ---- Errors --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        (
            b"TFL3" * 12,
            "the payload is not one of Ethos-U: it does not begin with COP1",
        ),
        (b"COP1COP2", "unknown driver action in the payload"),
        (driver_payload([0, 0])[:-4], "the payload ends within a driver action"),
        (driver_payload([0], product=3), "the payload is for an unknown NPU"),
    ],
)
def test_a_payload_that_is_none_is_refused(
    program: Path, payload: bytes, error: str
) -> None:
    result = run(program, [Job(payload, (b"",))])[0]
    assert (result.status, result.error) == (-1, error)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([0x0004], "command at byte 0, code 0x4: unknown command"),
        ([0x0100, 0x8000], "command at byte 4, code 0x8000: unknown command"),
        (
            [0x0100],
            "command at byte 0, NPU_SET_IFM_PAD_TOP: the stream ends without NPU_OP_STOP",
        ),
        (
            [0x4000],
            "command at byte 0, NPU_SET_IFM_BASE0: the stream ends before its payload",
        ),
        ([0x0005 | 7 << 16], "command at byte 0, NPU_OP_POOL: unknown pooling mode 7"),
        (
            [0x0006],
            "command at byte 0, NPU_OP_ELEMENTWISE: OFM from byte 0 to 1, but region 0 has 0 bytes",
        ),
    ],
)
def test_a_command_that_cannot_be_executed_is_named(
    program: Path, words: list[int], error: str
) -> None:
    result = run(program, [Job(driver_payload(words), (b"",))])[0]
    assert (result.status, result.error) == (-1, error)


def test_dma_copies_within_the_bounds_of_its_regions(program: Path) -> None:
    stream = (
        Stream()
        .add("SET_DMA0_DST_REGION", 1)
        .add("SET_DMA0_DST", 3)
        .add("SET_DMA0_LEN", 5)
    )
    stream.add("OP_DMA_START").add("OP_STOP")
    result = run_stream(program, stream, b"abcde", b"........")
    assert (result.status, result.regions[1]) == (0, b"...abcde")
    result = run_stream(program, stream, b"abcde", b".......")
    assert result.error.endswith(
        "destination from byte 3 to 8, but region 1 has 7 bytes"
    )


def test_rows_of_a_dma_transfer_are_spread_on_ethos_u65_only(program: Path) -> None:
    stream = Stream().add("SET_DMA0_DST_REGION", 1 | 1 << 9).add("SET_DMA0_LEN", 2)
    stream.add("SET_DMA0_SIZE0", 3).add("SET_DMA0_SKIP0", 1).add("OP_DMA_START").add(
        "OP_STOP"
    )
    result = run(program, [Job(stream.payload(1, 256), (b"aabbcc", b"........"))])[0]
    assert result.regions[1] == b"aa.bb.cc"
    assert run_stream(program, stream, b"aabbcc", b"........").error.endswith(
        "with strides"
    )


def table_lookup(precision: int, clip: int) -> Stream:
    """Load all lookup tables, then pool a byte of the IFM with the first table."""
    stream = Stream().add("SET_DMA0_DST", 48 * 1024 - 2048).add("SET_DMA0_LEN", 2048)
    stream.add("SET_DMA0_DST_REGION", 0x100).add("OP_DMA_START")
    stream.add("SET_OFM_PRECISION", precision | 1 << 8).add("SET_OFM_SCALE", 1)
    stream.add("SET_ACTIVATION", 16 | clip << 12).add("SET_OFM_REGION", 1)
    stream.add("SET_ACTIVATION_MIN", 0x8000).add("SET_ACTIVATION_MAX", 0x7FFF)
    return stream.add("OP_POOL").add("OP_STOP")


@pytest.mark.parametrize("clip", [3, 5])  # int8, int16
def test_a_clip_range_beyond_the_lookup_table_is_refused(
    program: Path, clip: int
) -> None:
    tables = bytes(reversed(range(256))) * 8
    result = run(program, [Job(table_lookup(0, 0).payload(0, 256), (tables, b"\0"))])[0]
    assert (result.status, result.regions[1]) == (0, b"\0")
    result = run(
        program, [Job(table_lookup(0, clip).payload(0, 256), (tables, b"\0"))]
    )[0]
    assert result.error.endswith("NPU_OP_POOL: no lookup table of this size in slot 0")


def test_weights_of_a_region_that_the_job_lacks_are_named(program: Path) -> None:
    stream = Stream().add("SET_WEIGHT_REGION", 5).add("OP_CONV").add("OP_STOP")
    result = run_stream(program, stream, bytes(16))
    assert result.error.endswith("weights from byte 0 to 0, but region 5 has 0 bytes")


def test_a_weight_stream_that_ends_early_ends_the_largest_convolution(
    program: Path,
) -> None:
    stream = Stream().add("SET_KERNEL_WIDTH_M1", 255).add("SET_KERNEL_HEIGHT_M1", 255)
    stream.add("SET_IFM_PAD_RIGHT", 255).add("SET_IFM_PAD_BOTTOM", 255)
    # Bricks in one place.
    stream.add("SET_IFM_PRECISION", 1 << 6).add("SET_IFM_DEPTH_M1", 65535)
    result = run_stream(program, stream.add("OP_CONV").add("OP_STOP"), bytes(64))
    assert result.error.endswith("the weight stream has too few weights")


# ---- Arithmetic ----------------------------------------------------------------------

OPERANDS = np.array([-128, -77, -3, -2, -1, 0, 1, 2, 3, 5, 90, 127], np.int8)
MUL, ADD, SUB, MIN, MAX, LRELU, ABS, CLZ, SHR, SHL = range(10)
DOUBLE, TRUNCATE, NATURAL = range(3)


def elementwise(mode: int, rounding: int, scale: int = 1, shift: int = 0) -> Stream:
    """Operands at 0 and 16, the result of 32 bits at 32."""
    columns = len(OPERANDS) - 1
    stream = (
        Stream().add("SET_OFM_SCALE", scale, shift).add("SET_OFM_WIDTH_M1", columns)
    )
    stream.add("SET_OFM_PRECISION", 1 | 2 << 1 | 1 << 8 | rounding << 14)
    stream.add("SET_IFM_PRECISION", 1).add("SET_IFM2_PRECISION", 1)
    for role, start in (("IFM", 0), ("IFM2", 16), ("OFM", 32)):
        stream.add(f"SET_{role}_WIDTH0_M1", columns).add(f"SET_{role}_BASE0", start)
        stream.add(f"SET_{role}_STRIDE_X", 4 if role == "OFM" else 1)
    stream.add("SET_OPA_SCALE", 1).add("SET_OPB_SCALE", 1)
    return stream.add("OP_ELEMENTWISE", mode).add("OP_STOP")


def result_of(program: Path, stream: Stream) -> list[int]:
    memory = (
        OPERANDS.tobytes().ljust(16) + OPERANDS[::-1].tobytes().ljust(16) + bytes(48)
    )
    result = run_stream(program, stream, memory)
    assert (result.status, result.error) == (0, "")
    return list(np.frombuffer(result.regions[0][32:], np.int32))


MODES: dict[int, Callable[[int, int], int]] = {
    MUL: lambda a, b: a * b,
    ADD: lambda a, b: a + b,
    SUB: lambda a, b: a - b,
    MIN: min,
    MAX: max,
    ABS: lambda a, b: abs(a),
    CLZ: lambda a, b: 0 if a < 0 else 32 - a.bit_length(),
}


@pytest.mark.parametrize("mode", MODES)
def test_an_elementwise_mode_computes_its_function(program: Path, mode: int) -> None:
    pairs = zip(OPERANDS.tolist(), OPERANDS[::-1].tolist(), strict=True)
    expected = [MODES[mode](a, b) for a, b in pairs]
    assert result_of(program, elementwise(mode, NATURAL)) == expected


def test_a_result_of_32_bits_has_no_zero_point(program: Path) -> None:
    stream = Stream().add("SET_OFM_ZERO_POINT", 100)
    stream.words += elementwise(MIN, NATURAL).words
    assert result_of(program, stream) == list(np.minimum(OPERANDS, OPERANDS[::-1]))


@pytest.mark.parametrize("shift", [1, 8, 31, 33, 40, 63])
@pytest.mark.parametrize("rounding", [DOUBLE, TRUNCATE, NATURAL])
def test_the_scale_of_the_output_is_rounded_in_each_mode(
    program: Path, rounding: int, shift: int
) -> None:
    def exact(value: int) -> int:
        product = value * scale
        if rounding == TRUNCATE:
            return abs(product) // 2**shift * (1 if product > 0 else -1)
        if rounding == NATURAL or shift <= 31:
            return (product + 2 ** (shift - 1)) // 2**shift
        high = (product + 2**30) // 2**31  # as gemmlowp: doubling high multiply,
        half = 2 ** (shift - 32)  # then division with ties away from zero
        return (abs(high) + half) // (2 * half) * (1 if high > 0 else -1)

    scale = 3 * 2**29 + (shift == 33) * 2**27
    products = [int(a) * int(b) for a, b in zip(OPERANDS, OPERANDS[::-1], strict=True)]
    expected = [max(-(2**31), min(2**31 - 1, exact(product))) for product in products]
    assert result_of(program, elementwise(MUL, rounding, scale, shift)) == expected
