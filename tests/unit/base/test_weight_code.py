"""Coded weights are decoded exactly, in Python and by the decoder in generated C."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from firmwright.base.weight_code import HEADER_WORDS, decode_block, encode_blocks
from firmwright.ops.intrinsics import DECODE_WEIGHTS

Blocks = np.ndarray
FLAGS = [
    *("-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"),
    *("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
]


def bytes_of(values: Blocks) -> Blocks:
    return np.round(values).astype(np.int64).astype(np.uint8)


def cases() -> dict[str, Blocks]:
    rng = np.random.default_rng(5)
    return {
        "normal": bytes_of(rng.normal(0, 20, (4, 300))),
        "off center": bytes_of(rng.normal(200, 9, (3, 77))),
        "around the ends of the range": bytes_of(rng.normal(127, 3, (2, 64))),
        "steep": bytes_of(rng.laplace(0, 1.5, (7, 33))),
        "uniform": rng.integers(0, 256, (2, 500)).astype(np.uint8),
        "every value once": np.arange(256, dtype=np.uint8)[np.newaxis],
        "two far values": rng.choice([1, 255], (3, 41)).astype(np.uint8),
        "all equal": np.full((3, 50), 77, np.uint8),
        "one byte": np.array([[200]], np.uint8),
        "blocks of one byte": rng.integers(0, 256, (19, 1)).astype(np.uint8),
        "one rare value": np.array([[3] * 4000 + [250]], np.uint8),
    }


@pytest.mark.parametrize("name", cases())
def test_every_block_is_decoded_exactly(name: str) -> None:
    blocks = cases()[name]
    coded = encode_blocks(blocks)
    assert coded.dtype == np.uint16
    for index, block in enumerate(blocks):
        assert decode_block(coded, index, blocks.shape[1]).tolist() == block.tolist()


def test_blocks_of_random_sizes_and_spreads_are_decoded_exactly() -> None:
    rng = np.random.default_rng(9)
    for _ in range(40):
        size, spread = rng.integers(1, 90, 2), 10 ** rng.uniform(-1, 2)
        blocks = bytes_of(rng.normal(rng.integers(0, 256), spread, size))
        coded = encode_blocks(blocks)
        at = int(rng.integers(0, size[0]))
        assert decode_block(coded, at, size[1]).tolist() == blocks[at].tolist()


@pytest.mark.parametrize(
    ("spread", "bits_max"), [(2.0, 3.35), (10.0, 5.5), (40.0, 7.45)]
)
def test_the_code_is_within_a_quarter_of_a_bit_of_the_entropy(
    spread: float, bits_max: float
) -> None:
    data = bytes_of(np.random.default_rng(1).normal(0, spread, (1, 20_000)))
    counts = np.bincount(data[0])
    share = counts[counts > 0] / data.size
    entropy = float(-(share * np.log2(share)).sum())
    bits = 16 * (len(encode_blocks(data)) - HEADER_WORDS) / data.size
    assert entropy <= bits <= min(entropy + 0.25, bits_max)


def test_random_bytes_grow_by_the_header_only() -> None:
    data = np.random.default_rng(2).integers(0, 256, (1, 1000)).astype(np.uint8)
    assert encode_blocks(data).nbytes <= 1000 + 2 * HEADER_WORDS + 8


def program() -> str:
    """Return C that decodes each case from and to memory of exactly its size."""
    parts = [
        "#include <stdint.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
    ]
    parts.append(
        "static void decode(uint8_t *dst, const uint16_t *coded, int32_t block, "
    )
    parts.append(f"int32_t count)\n{{\n{DECODE_WEIGHTS.rare}\n}}\nint main(void)\n{{\n")
    for blocks in cases().values():
        words = encode_blocks(blocks)
        count = blocks.shape[1]
        parts.append(f"""{{
static const uint16_t words[] = {{{", ".join(map(str, words.tolist()))}}};
for (int32_t block = 0; block < {len(blocks)}; ++block) {{
uint16_t *coded = malloc(sizeof words);
uint8_t *bytes = malloc({count});
memcpy(coded, words, sizeof words);
decode(bytes, coded, block, {count});
for (int32_t i = 0; i < {count}; ++i) {{ printf("%d ", bytes[i]); }}
free(coded);
free(bytes);
}}
}}
puts("");
""")
    return "".join([*parts, "return 0;\n}\n"])


@pytest.mark.host_c
def test_the_decoder_in_c_reads_only_the_coded_array_and_is_exact(
    tmp_path: Path,
) -> None:
    (tmp_path / "decode.c").write_text(program())
    binary = tmp_path / "decode"
    subprocess.run(
        ["gcc", *FLAGS, str(tmp_path / "decode.c"), "-o", str(binary)], check=True
    )
    printed = subprocess.run(
        [binary], capture_output=True, text=True, check=True
    ).stdout
    lines = [[int(word) for word in line.split()] for line in printed.splitlines()]
    assert lines == [blocks.reshape(-1).tolist() for blocks in cases().values()]
