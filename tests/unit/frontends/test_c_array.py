"""Models in C source text: every spelling of an array gives the bytes of the file."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from firmwright.base.errors import ModelError
from firmwright.base.resources import digits_dir
from firmwright.frontends.tflite import read_c_array, read_tflite
from firmwright.pipeline import complete_model

MODEL = (digits_dir() / "digits.tflite").read_bytes()
SMALL = MODEL[:64]


def _list(
    data: bytes, spell: Callable[[int], str], kind: str = "const unsigned char"
) -> str:
    rows = [", ".join(map(spell, data[k : k + 12])) for k in range(0, len(data), 12)]
    return (
        f"alignas(16) {kind} g_model[] DATA_ALIGN = {{\n  "
        + ",\n  ".join(rows)
        + "};\n"
    )


def _words(data: bytes, width: int) -> str:
    values = np.frombuffer(data, f"<u{width}").tolist()
    return f"const uint{8 * width}_t w[] = {{{', '.join(f'{value:#x}UL' for value in values)},}};"


def _character(byte: int) -> str:
    named = {0: "\\0", 10: "\\n", 39: "\\'", 92: "\\\\"}
    text = chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}"
    return f"'{named.get(byte, text)}'"


def _string(data: bytes) -> str:
    rows = (
        "".join(f"\\{byte:03o}" for byte in data[k : k + 20])
        for k in range(0, len(data), 20)
    )
    return (
        "const char g[] =\n  " + "\n  ".join(f'"{row}" // part' for row in rows) + ";\n"
    )


SPELLINGS = {
    "hexadecimal": _list(MODEL, "0x{:02X}".format),
    "decimal": _list(MODEL, str),
    "octal": _list(MODEL, "0{:o}".format),
    "signed": _list(MODEL, lambda byte: str(byte - 256 * (byte > 127)), "const int8_t"),
    "characters": _list(MODEL, _character, "const char"),
    "words": _words(MODEL, 4),
    "double words": _words(MODEL, 8),
    "string": _string(MODEL),
    "comments": _list(MODEL, "0x{:02x} /* }} */".format).replace(",\n", ", // };\n"),
    "directives": '#include "x.h"\n#define N {1}\n'
    + _list(MODEL, "{}u".format)
    + "#endif\n",
    "second array": "float f[] = {1.5f, 2};"
    + _list(SMALL, str)
    + _list(MODEL, str)
    + "int n;",
    "in a namespace": "namespace a { extern int n; " + _list(MODEL, str) + "}\n",
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_an_array_is_read_in_every_spelling(name: str) -> None:
    text = SPELLINGS[name].encode("latin-1")
    assert read_c_array(text, "model.cc") == MODEL


def test_a_c_source_is_a_model_file() -> None:
    file = digits_dir() / "digits_model_data.h"
    data = complete_model(SPELLINGS["hexadecimal"].encode(), file)
    assert read_tflite(data, file.name).subgraphs[0].nodes


@pytest.mark.parametrize(
    "text", ["", "extern const unsigned char g_model[];", "int a[] = {1, 2};"]
)
def test_a_source_without_a_model_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(
        ModelError, match="no array in it begins as a TFLite model"
    ) as caught:
        read_c_array(text.encode(), "model.h")
    assert "the source file that defines the array" in caught.value.hint


def test_damaged_sources_end_in_bytes_or_one_error() -> None:
    rng = random.Random(5)
    seeds = [text.encode("latin-1")[:3000] + b"};" for text in SPELLINGS.values()]
    pieces = [
        b"{",
        b"}",
        b'"',
        b"'",
        b"/*",
        b"\\",
        b"0x",
        b",",
        b"//",
        b"#",
        b"\n",
        b"9" * 40,
    ]
    for _ in range(400):
        text = bytearray(rng.choice(seeds))
        for _ in range(rng.randrange(1, 6)):
            place = rng.randrange(len(text))
            text[place : place + rng.randrange(4)] = rng.choice(pieces)
        try:
            read_c_array(bytes(text), "hostile.cc")
        except ModelError:
            continue
