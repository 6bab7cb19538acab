"""Compressed constants (TFLM_DECODE) compared with TFLM, which decodes at run time."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from firmwright.base.dtypes import INT8
from firmwright.base.errors import NotSupportedError, UnsupportedError
from firmwright.base.quant import Quantization
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model
from firmwright.flows.verify.verification import verify
from firmwright.frontends.tflite.decompress_constants import decompress_constant
from firmwright.ir.graph.nodes import TensorType
from firmwright.pipeline import load_module_bytes
from tests.state.model_writer import GraphFile, ModelFile

Array = NDArray[np.generic]
Parts = tuple[bytes, bytes]
"""Contents of an encoded tensor and of its ancillary tensor."""


def header(kind: int, *more: int) -> bytes:
    return bytes([kind, 1, 0, 0, 1, *more]).ljust(16, b"\0")


def packed(codes: Sequence[str]) -> bytes:
    bits = "".join(codes)
    bits += "0" * (-len(bits) % 32)
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


def looked_up(values: Array, axis: int | None, width: int) -> Parts:
    """Encode with one lookup table, or one per channel of `axis`."""
    rows = [values.reshape(1, -1)] if axis is None else [np.moveaxis(values, axis, 0)]
    tables = [np.unique(row) for row in rows[0].reshape(len(rows[0]), -1)]
    stride = max(map(len, tables))
    channel = np.zeros(values.shape, int)
    if axis is not None:
        channel += np.arange(len(tables)).reshape([-1] + [1] * (values.ndim - 1 - axis))
    codes = [
        f"{np.searchsorted(tables[place], value):0{width}b}"
        for place, value in zip(channel.flat, values.flat, strict=True)
    ]
    data = b"".join(np.resize(table, stride).tobytes() for table in tables)
    return packed(codes), header(0, width, stride) + data


def pruned(values: Array, zero_point: int) -> Parts:
    remaining = values != zero_point
    return packed([str(int(bit)) for bit in remaining.flat]), header(2) + values[
        remaining
    ].tobytes()


CODES = {2: ["0", "10", "110"], 4: ["1110", "111100", "111101", "11111"]}
"""Code words resolved by the first 3-bit table and by a second one."""


def huffman(values: Array, wide: bool) -> Parts:
    symbols = list(np.unique(values))
    words = [*CODES[2], *CODES[4]][: len(symbols)]
    assert len(symbols) == 7
    found, shift, dtype = (1 << 31, 27, "<u4") if wide else (1 << 15, 11, "<u2")
    table = np.zeros(16, dtype)
    table[7] = 2 << shift | 1  # three more bits, starting at the next entry
    for word, symbol in zip(words, symbols, strict=True):
        start, rest = (0, word) if word[:3] != "111" else (8, word[3:])
        first = int(rest, 2) << (3 - len(rest))
        mask = 0xFFFF if wide else 0xFF
        entry = found | len(rest) << shift | int(symbol) & mask
        table[start + first : start + first + (1 << (3 - len(rest)))] = entry
    codes = [words[symbols.index(value)] for value in values.flat]
    return packed(codes), header(1, 2 << 4 | wide) + table.tobytes()


def constant(
    graph: GraphFile, name: str, parts: Parts, *kind: object, axis: int = 0
) -> int:
    """Add a tensor that is decoded from `parts` at run time."""
    given = [
        graph.constant(f"{name}/{part}", np.frombuffer(data, np.uint8))
        for part, data in zip(("encoded", "ancillary"), parts, strict=True)
    ]
    made = graph.tensor(name, *kind, axis=axis)  # type: ignore[arg-type]
    graph.op("custom:TFLM_DECODE", given, [made])
    return made


def drawn(
    seed: int, shape: tuple[int, ...], values: Sequence[float], dtype: str
) -> Array:
    """Return random values that include all of `values`."""
    rng = np.random.default_rng(seed)
    picks = np.concatenate(
        [values, rng.choice(values, int(np.prod(shape)) - len(values))]
    )
    return rng.permutation(picks).astype(dtype).reshape(shape)


SEVEN = (-128, -3, -1, 0, 2, 77, 127)


def every_compression() -> bytes:
    file = ModelFile()
    main = file.graph("main")
    x = main.input("x", "int8", (1, 4, 4, 3), 0.5, 3)
    bias = main.constant(
        "bias", np.array([10, -20, 30, 0], np.int32), [0.05, 0.1, 0.05, 0.1]
    )
    weights = drawn(1, (4, 1, 1, 3), SEVEN[:5], "int8")
    w = constant(
        main, "w", looked_up(weights, 0, 3), "int8", (4, 1, 1, 3), [0.1, 0.2, 0.1, 0.2]
    )
    y = main.tensor("y", "int8", (1, 4, 4, 4), 0.5, 3)
    main.op("CONV_2D", [x, w, bias], [y], "Conv2DOptions", strideH=1, strideW=1)

    taps = drawn(2, (1, 2, 2, 4), SEVEN, "int8")
    kind = ("int8", (1, 2, 2, 4), [0.1, 0.2, 0.1, 0.2])
    d = constant(main, "d", looked_up(taps, 3, 2), *kind, axis=3)
    z = main.tensor("z", "int8", (1, 4, 4, 4), 0.5, 3)
    options = {"strideH": 1, "strideW": 1, "depthMultiplier": 1}
    main.op("DEPTHWISE_CONV_2D", [y, d, bias], [z], "DepthwiseConv2DOptions", **options)

    sums = [z]
    shape = (1, 4, 4, 4)
    compressed: Mapping[str, Callable[[Array], Parts]] = {
        "one_table": lambda values: looked_up(values, None, 7),
        "zeros": lambda values: pruned(values, -3),
        "words": lambda values: huffman(values, wide=False),
        "wide_words": lambda values: huffman(values, wide=True),
    }
    for place, (name, compress) in enumerate(compressed.items()):
        parts = compress(drawn(3 + place, shape, SEVEN, "int8"))
        sums.append(main.tensor(f"plus_{name}", "int8", shape, 0.5, 3))
        c = constant(main, name, parts, "int8", shape, 0.25, -3)
        main.op("ADD", [z, c], [sums[-1]], "AddOptions")

    s = main.input("s", "int16", (1, 16), 0.5, 0)
    parts = huffman(
        drawn(9, (1, 16), (-32768, -3, -1, 0, 2, 77, 32767), "int16"), wide=True
    )
    c = constant(main, "shorts", parts, "int16", (1, 16), 0.5, 0)
    sums.append(main.tensor("plus_shorts", "int16", (1, 16), 0.5, 0))
    main.op("ADD", [s, c], [sums[-1]], "AddOptions", potScaleInt16=False)

    f = main.input("f", "float32", (1, 16))
    for name, compress in {
        "floats": compressed["one_table"],
        "kept": lambda v: pruned(v, 0),
    }.items():
        parts = compress(drawn(10, (1, 16), (0.0, 1.5, -2.25), "float32"))
        c = constant(main, name, parts, "float32", (1, 16))
        sums.append(main.tensor(f"plus_{name}", "float32", (1, 16)))
        main.op("ADD", [f, c], [sums[-1]], "AddOptions")
    main.outputs(*sums[1:])
    return file.data()


@pytest.mark.host_c
def test_compressed_constants_equal_those_decoded_by_tflm() -> None:
    data = every_compression()
    compiled = compile_for(
        Model(load_module_bytes(data, "compressed"), data), "host", numerics="tflm"
    )
    found = verify(compiled, samples=2)
    assert found.exact
    assert found.values == 2 * (4 * 64 + 3 * 16)


BYTES = TensorType((8,), INT8, Quantization((1.0,), (0,)))


@pytest.mark.parametrize(
    ("encoded", "ancillary", "why"),
    [
        (b"", b"\0\1", "ancillary data of 2 bytes"),
        (b"\0", header(127), "of kind 127"),
        (b"\0", struct.pack("16B", 0, 2, *[0] * 14), "of version 2.0"),
        (b"\0", header(0, 0, 1), "indices of no bits"),
        (b"\0", header(0, 3, 2) + b"\1\2", "24 bits of a tensor of 1 bytes"),
        (b"\xff", header(0, 1, 2) + b"\1", "an index of 1 into a table of 1"),
        (b"\xff", header(2) + b"\1", "8 values of a table of 1"),
        (b"\0\0", header(1, 0x20) + b"\0\0" * 8, "beyond the 2 bytes"),
        (b"\xff", header(1, 0x20) + b"\0\0" * 2, "at 7 of a table of 2"),
    ],
)
def test_malformed_compressed_data_is_rejected(
    encoded: bytes, ancillary: bytes, why: str
) -> None:
    with pytest.raises(NotSupportedError, match=why):
        decompress_constant(encoded, ancillary, BYTES)


def test_non_constant_compressed_data_is_rejected_with_its_location() -> None:
    file = ModelFile()
    main = file.graph("main")
    x = main.input("x", "uint8", (16,))
    y = main.tensor("y", "int8", (8,), 0.5, 0)
    main.op("custom:TFLM_DECODE", [x, main.constant("a", np.zeros(16, np.uint8))], [y])
    main.outputs(y)
    with pytest.raises(UnsupportedError, match=r"TFLM_DECODE.*not constant"):
        load_module_bytes(file.data(), "late")
