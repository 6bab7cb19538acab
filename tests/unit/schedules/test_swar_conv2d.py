"""Two products per multiplication and requantization by 32-bit products are exact."""

from __future__ import annotations

import subprocess
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from firmwright.base.dtypes import INT8, INT32
from firmwright.base.quant import Rounding
from firmwright.build.compiler_flags import WARNINGS
from firmwright.ops.requantize import Requantization
from firmwright.schedules.narrow_requantize import narrow_requantize
from firmwright.schedules.scalar import swar_conv2d
from firmwright.schedules.scalar.depthwise_conv2d import SCHEDULES as DEPTHWISE

BLOCKS = {item.name: item for item in swar_conv2d.INTRINSICS if "swar" in item.name}
DEPTH = 61


def operands() -> tuple[np.ndarray, ...]:
    """Return one stream, words and totals with extreme values, and the column sums."""
    rng = np.random.default_rng(3)
    weights = rng.choice([-128, -100, -3, 0, 1, 90, 127], DEPTH)
    weights[:24] = rng.integers(-2, 3, 24)  # longer than a segment
    columns = rng.choice([-128, 127, 5], (DEPTH, swar_conv2d.PIXELS))
    columns[:, 0], columns[:, 1] = (
        np.where(weights < 0, (127,), -128),
        np.where(weights < 0, -128, 127),
    )
    bias = rng.integers(-(1 << 20), 1 << 20, 1)
    stream, start = swar_conv2d.pack_streams(weights[None], bias)
    words = (columns[:, ::2] + columns[:, 1::2] * 65536).reshape(-1)
    return stream, words, start, bias + weights @ columns


@pytest.mark.parametrize("seed", range(20))
def test_segments_are_the_longest_with_sums_of_16_bits(seed: int) -> None:
    rng = np.random.default_rng(seed)
    row = rng.integers(-128, 128, 200) // int(rng.choice([1, 8, 100]))
    segments = swar_conv2d.divide_row(row.tolist())
    assert [weight for segment in segments for weight in segment] == row.tolist()

    def fits(weights: list[int]) -> bool:
        ends = [[w * x for x in (-128, 127)] for w in weights]
        return sum(map(min, ends)) >= -(1 << 15) and sum(map(max, ends)) < 1 << 15

    assert all(map(fits, segments))
    for segment, following in pairwise(segments):
        assert len(segment) == 16 or not fits([*segment, following[0]])


def test_the_sums_of_a_stream_are_those_of_its_weights() -> None:
    stream, words, start, sums = operands()
    block = next(iter(BLOCKS.values()))
    result = block.meaning(
        stream[:, None], words[:, None], start[:, None], None, DEPTH, 1
    )
    assert result[:, 0].tolist() == sums.tolist()


def source(block: str, text: str) -> str:
    stream, words, start, _ = operands()
    arrays = (
        ("int8_t", "stream", stream),
        ("int32_t", "words", words),
        ("int32_t", "totals", start),
    )
    data = "\n".join(
        f"static const {kind} {name}[] = {{{', '.join(map(str, values.tolist()))}}};"
        for kind, name, values in arrays
    )
    names = [f"c{pixel}" for pixel in range(swar_conv2d.PIXELS)]
    stores = "\n".join(f"sums[{pixel}] = {name};" for pixel, name in enumerate(names))
    registers = f"int32_t {', '.join(names)};\n{text}\n{stores}"
    return f"""#include <stdint.h>
{data}
static inline __attribute__((always_inline)) void block(const int8_t *w, const int32_t *x,
    const int32_t *start, int32_t *sums, int32_t steps, int32_t segments)
{{
{registers if "c0" in text else text}
}}
void run(int32_t *sums);
void run(int32_t *sums)
{{
    block(stream, words, totals, sums, {DEPTH}, 9);
}}
"""


def compiled(command: list[str], text: str, folder: Path) -> Path:
    file, result = folder / "block.c", folder / "block"
    file.write_text(text)
    options = ["-std=gnu99", *WARNINGS, str(file), "-o", str(result)]
    done = subprocess.run([*command, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return result


@pytest.mark.host_c
def test_portable_c_is_exact_under_sanitizers(tmp_path: Path) -> None:
    block = next(iter(BLOCKS.values()))
    text = "#include <stdio.h>\n" + source(block.name, block.portable)
    text += "int main(void) { int32_t sums[8]; run(sums);\n"
    text += 'for (int i = 0; i < 8; ++i) printf("%ld ", (long)sums[i]);\nreturn 0; }\n'
    flags = ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    program = compiled(["gcc", *flags], text, tmp_path)
    printed = subprocess.run(
        [program], capture_output=True, text=True, check=True
    ).stdout
    assert [int(value) for value in printed.split()] == operands()[3].tolist()


COMMANDS = [
    pytest.param(f"{family}_swar_1x8", command, marks=mark)
    for family, options in (
        ("thumb1", ["-mthumb", "-mcpu=cortex-m0"]),
        ("mla", ["-mthumb", "-mcpu=cortex-m3"]),
        ("rvm", ["-march=rv32imac", "-mabi=ilp32"]),
    )
    for command, mark in (
        (["riscv64-unknown-elf-gcc", *options], pytest.mark.qemu("riscv32"))
        if family == "rvm"
        else (["arm-none-eabi-gcc", *options], pytest.mark.qemu("arm")),
        (
            [
                "clang",
                f"--target={'riscv32' if family == 'rvm' else 'thumb-none-eabi'}",
                *options,
            ],
            pytest.mark.host_c,
        ),
    )
]


@pytest.mark.parametrize(("block", "command"), COMMANDS)
@pytest.mark.parametrize("level", ["-O2", "-Os"])
def test_compilers_allocate_registers(
    block: str, command: list[str], level: str, tmp_path: Path
) -> None:
    text = source(block, BLOCKS[block].text["gnu"])
    command = [*command, "-fomit-frame-pointer"]
    assert compiled([*command, level, "-ffreestanding", "-c"], text, tmp_path).exists()


@pytest.mark.parametrize("seed", range(12))
def test_layers_match_the_reference(seed: int, judge, random_convolution) -> None:
    call = random_convolution(seed, depthwise=False)
    for schedule in swar_conv2d.SCHEDULES[:2]:
        for config in schedule.configs(call):
            judge(call, schedule, config)


@pytest.mark.parametrize("seed", range(6))
def test_depthwise_layers_with_narrow_products_match(
    seed: int, judge, random_convolution
) -> None:
    call = random_convolution(seed, depthwise=True)
    for config in DEPTHWISE[1].configs(call):
        judge(call, DEPTHWISE[1], config)


@pytest.mark.parametrize("rounding", [Rounding.ONCE, Rounding.TWICE])
@pytest.mark.parametrize("seed", range(4))
def test_narrow_products_equal_the_definition_for_every_accumulator(
    seed: int, rounding: Rounding
) -> None:
    rng = np.random.default_rng(seed)
    zero_point = int(rng.integers(-128, 20))
    lowest = zero_point if rounding is Rounding.TWICE else -128
    multipliers = tuple(rng.integers(1 << 30, 1 << 31, 3).tolist())
    params = Requantization(
        multipliers, (-8, -9, -7), rounding, zero_point, lowest, 127
    )
    low, high = (
        np.array([-90_000, -20_000, -40_000]),
        np.array([80_000, 120_000, -39_000]),
    )
    narrow = narrow_requantize(params, low, high, INT8)
    assert narrow is not None
    for channel in range(3):
        acc = np.arange(low[channel], high[channel] + 1)
        coarse_part = acc * narrow.high_factor[channel]
        wide = coarse_part + (acc * narrow.low_factor[channel] >> narrow.split_bits)
        wide += narrow.addend[channel]
        assert INT32.min <= wide.min()
        assert wide.max() <= INT32.max
        y = np.clip(wide >> narrow.shift, lowest, 127)
        expected = params.apply(np.repeat(acc[:, None], 3, axis=1), INT8)[:, channel]
        assert (y == expected).all()


def test_there_is_no_narrow_form_without_precision() -> None:
    params = Requantization((1_234_567_891,), (-19,), Rounding.ONCE, 0, -128, 127)
    assert (
        narrow_requantize(params, np.array([-(1 << 29)]), np.array([1 << 29]), INT8)
        is None
    )
