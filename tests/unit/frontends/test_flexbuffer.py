"""Options of custom operators: output of the published writer, and damaged bytes."""

from __future__ import annotations

from firmwright.frontends.tflite.flexbuffer import read_flexbuffer_map
from tests.ops.tflite_writer import flexbuffer

OPTIONS = {
    "T": 7,
    "clamping": True,
    "fft_length": 512,
    "gain": 0.3,
    "large": 5_000_000_000,
    "name": "mel",
    "shift": -12,
    "third": 1.5,
}


def test_a_map_round_trips() -> None:
    assert read_flexbuffer_map(bytes(flexbuffer(OPTIONS))) == OPTIONS
    assert read_flexbuffer_map(bytes(flexbuffer({"shift": 12}))) == {"shift": 12}


def test_bytes_that_are_not_a_map_have_no_options() -> None:
    assert read_flexbuffer_map(b"") is None
    assert read_flexbuffer_map(b"\x05\x04\x01") is None  # the number 5
    assert read_flexbuffer_map(b"no flexbuffer at all") is None


def test_damaged_bytes_are_never_read_out_of_bounds() -> None:
    data = bytes(flexbuffer(OPTIONS))
    for index in range(len(data)):
        for value in (0, 1, 0x7F, 0xFF):
            options = read_flexbuffer_map(
                data[:index] + bytes([value]) + data[index + 1 :]
            )
            assert options is None or isinstance(options, dict)
        read_flexbuffer_map(data[index:])
        read_flexbuffer_map(data[:index])
