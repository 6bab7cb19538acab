"""Non-models, wrong offsets and truncated files: one error in bounded time."""

import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from firmwright.base.errors import ModelError
from firmwright.frontends.tflite import read_tflite
from firmwright.frontends.tflite.decoded_model import RawModel

TableDict = dict[str, Any]
Writer = Callable[[TableDict], bytes]
Edit = Callable[[TableDict], object]


@pytest.mark.parametrize(
    "data", [b"", b"TFL3", b"\x1c\0\0\0TFL2" + bytes(64), b"PK\3\4" * 9]
)
def test_a_file_of_another_format_is_rejected(data: bytes) -> None:
    with pytest.raises(
        ModelError,
        match=f"not a TFLite model: its {len(data)} bytes lack the identifier",
    ):
        read_tflite(data, "t")


# bytes that lie: patched after writing


def _root(data: bytes) -> tuple[int, int]:
    """Return (position of the root table, position of its vtable)."""
    position = struct.unpack_from("<I", data, 0)[0]
    return position, position - struct.unpack_from("<i", data, position)[0]


def _field(data: bytes, slot: int) -> int:
    """Return the position of a field of the root table."""
    position, vtable = _root(data)
    return position + int(struct.unpack_from("<H", data, vtable + 4 + 2 * slot)[0])


def _target(data: bytes, place: int) -> int:
    return place + int(struct.unpack_from("<I", data, place)[0])


LIES: dict[str, tuple[Callable[[bytes], tuple[int, str, int]], str]] = {
    "root outside": (lambda d: (0, "<I", len(d)), "root: .*outside the file"),
    "root at nothing": (lambda d: (0, "<I", 0), "root: .*outside the file"),
    "root odd": (lambda d: (0, "<I", _root(d)[0] + 1), "not a multiple of 4"),
    "vtable before the file": (
        lambda d: (_root(d)[0], "<i", _root(d)[0] + 4),
        "its vtable would be at byte -4",
    ),
    "vtable behind the file": (
        lambda d: (_root(d)[0], "<i", -len(d)),
        "its vtable would be at byte",
    ),
    "vtable too small": (
        lambda d: (_root(d)[1], "<H", 2),
        "its vtable has the impossible size 2",
    ),
    "vtable odd": (
        lambda d: (_root(d)[1], "<H", 7),
        "its vtable has the impossible size 7",
    ),
    "vtable too large": (lambda d: (_root(d)[1], "<H", 65534), "impossible size 65534"),
    "table too large": (
        lambda d: (_root(d)[1] + 2, "<H", 65535),
        "its table has the impossible size 65535",
    ),
    "field outside its table": (
        lambda d: (_root(d)[1] + 4, "<H", 4000),
        "version: .*the field is at byte 4000",
    ),
    "field inside its head": (
        lambda d: (_root(d)[1] + 4, "<H", 2),
        "the field is at byte 2",
    ),
    "field odd": (
        lambda d: (_root(d)[1] + 4, "<H", 5),
        "a value of 4 bytes is misaligned at byte",
    ),
    "vector too long": (
        lambda d: (_target(d, _field(d, 4)), "<I", 0xFFFFFFFF),
        "buffers: .*4294967295 elements of 4 bytes reach past the end",
    ),
    "string without end": (
        lambda d: (_target(d, _field(d, 3)), "<I", 3),
        "description: .*does not end in a zero byte",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_wrong_offset_is_rejected(
    lie: str, tiny: TableDict, write_model: Writer
) -> None:
    patch, message = LIES[lie]
    data = bytearray(write_model(tiny))
    place, form, value = patch(bytes(data))
    struct.pack_into(form, data, place, value)
    with pytest.raises(ModelError, match=message):
        read_tflite(bytes(data), "t")


def test_shared_tables_are_bounded_by_the_budget(
    tiny: TableDict, write_model: Writer
) -> None:
    count = 20_000
    tiny["Buffers"] = [{"_": "Buffer"}] * 2 + [{"_": "Buffer"}] * count
    tiny["Buffers"][1] = {"_": "Buffer", "Data": np.zeros(100_000, np.uint8)}
    data = bytearray(write_model(tiny))
    vector = _target(data, _field(data, 4))
    shared = _target(data, vector + 8)
    for place in range(vector + 4, vector + 4 + 4 * (count + 2), 4):
        struct.pack_into("<I", data, place, shared - place)
    tracemalloc.start()
    with pytest.raises(ModelError, match="shared parts would"):
        read_tflite(bytes(data), "t")
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 40 * len(data)  # unfolded, the buffers alone would be 2 GB


def test_every_changed_byte_and_every_truncation_is_handled(
    tiny: TableDict, write_model: Writer
) -> None:
    data = write_model(tiny)
    outcomes = {"read": 0, "refused": 0}
    for place in range(len(data)):
        for mask in (0x01, 0x80, 0xFF):
            changed = bytearray(data)
            changed[place] ^= mask
            outcomes[_outcome(bytes(changed))] += 1
        assert _outcome(data[:place]) == "refused" or place > len(data) - 4
    assert outcomes["refused"] > len(data)
    assert outcomes["read"] > 0


def _outcome(data: bytes) -> str:
    try:
        model = read_tflite(data, "t")
    except ModelError:
        return "refused"
    assert isinstance(model, RawModel)
    return "read"


# against others
