"""Extraction of a model from C source text, an array in Arduino and TFLM projects.

Nothing is compiled. Initializers are lists of integers (decimal, octal, hexadecimal or
characters, of 1 to 8 bytes each) or string literals; anything else in the text is
skipped.
"""

import re

import numpy as np

from firmwright.base.errors import ModelError
from firmwright.tflite_schema import FILE_IDENTIFIER

SUFFIXES = (".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".hxx", ".inc", ".ino")

_QUOTED = re.compile(
    r"""//[^\n]*|/\*[\s\S]*?(?:\*/|\Z)|"(?:\\[\s\S]|[^"\\\n])*"?|'(?:\\[^\n']{1,4}|\\'|[^'\\\n])'"""
)
_DIRECTIVE = re.compile(r"^[ \t]*#[^\n]*", re.MULTILINE)
_INITIALIZER = re.compile(r'\{([^{}"=;]*)\}|((?:"\d+"\s*)+)')
_INTEGER = re.compile(r"-?(?:0x[0-9a-f]+|0b[01]+|\d+)(?=u?l{0,2}u?\Z)")
_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]+)|([0-7]{1,3})|\r?(\n)|([\s\S]))")
_CONTROL = {b"a": 7, b"b": 8, b"e": 27, b"f": 12, b"n": 10, b"r": 13, b"t": 9, b"v": 11}


def is_c_source(file: str) -> bool:
    return file.lower().endswith(SUFFIXES)


def read_c_array(data: bytes, file: str) -> bytes:
    """Return the largest array that begins as a .tflite file, or raise ModelError."""
    strings: list[bytes] = []

    def simplify(match: re.Match[str]) -> str:
        text = match[0]
        if text[0] == "/" or text[-1] not in "\"'" or len(text) == 1:
            return " "  # a comment or an unterminated string
        value = _ESCAPE.sub(_unescape, text[1:-1].encode("latin-1"))
        if text[0] == "'":
            return str(value[0]) if value else "0"
        strings.append(value)
        return f'"{len(strings) - 1}"'

    # Latin-1 maps each byte to one character.
    plain = _DIRECTIVE.sub("", _QUOTED.sub(simplify, data.decode("latin-1")))
    models: list[bytes] = []
    for match in _INITIALIZER.finditer(plain):
        is_list = match[2] is None
        model = _list_bytes(match[1]) if is_list else _joined(match[2], strings)
        if model:
            models.append(model)
    if not models:
        mark = FILE_IDENTIFIER.decode()
        what = f"no array in it begins as a TFLite model, with {mark} at byte 4."
        hint = (
            "the source file that defines the array, not a header that only "
            "declares it."
        )
        raise ModelError(what, where=file, hint=hint)
    return max(models, key=len)


def _joined(indices: str, strings: list[bytes]) -> bytes | None:
    places = map(int, re.findall(r"\d+", indices))
    value = b"".join(strings[place] for place in places)
    return value if value[4:8] == FILE_IDENTIFIER else None


def _list_bytes(text: str) -> bytes | None:
    """Return the bytes of a model in little-endian elements of some width, or None."""
    head = list(map(_integer, text[:400].split(",")[:8]))
    width = next((w for w in (1, 2, 4, 8) if _begins_model(head, w)), 0)
    if not width:
        return None
    items = text.split(",")
    if not items[-1].strip():
        items.pop()
    known = {item: _integer(item) for item in set(items)}
    if None in known.values():
        return None
    values = [known[item] for item in items]
    mask = (1 << 8 * width) - 1
    numbers = [value & mask for value in values if value is not None]
    return np.array(numbers, f"<u{width}").tobytes()


def _begins_model(head: list[int | None], width: int) -> bool:
    first = head[: 8 // width]
    if len(first) < 8 // width:
        return False
    mask, data = (1 << 8 * width) - 1, b""
    for value in first:
        if value is None:
            return False
        data += (value & mask).to_bytes(width, "little")
    return data[4:] == FILE_IDENTIFIER


def _integer(text: str) -> int | None:
    match = _INTEGER.match(text.strip().lower())
    if match is None or len(match[0]) > 20:
        return None
    digits = match[0].removeprefix("-")
    is_octal = digits[0] == "0" and digits.isdigit()
    if is_octal and re.search("[89]", digits):
        return None
    value = int(digits, 8 if is_octal else 0)
    return -value if match[0][0] == "-" else value


def _unescape(match: re.Match[bytes]) -> bytes:
    hexadecimal, octal, newline, other = match.groups()
    if newline:
        return b""
    if hexadecimal or octal:
        return bytes([int(hexadecimal or octal, 16 if hexadecimal else 8) & 0xFF])
    return bytes([_CONTROL.get(other, other[0])])
