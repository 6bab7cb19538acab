"""The link's bytes: stuffing, frames, payloads, and a reader that resists garbage."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firmwright.base.errors import DeviceError
from firmwright.device.fault_report import Fault
from firmwright.device.link_protocol import (
    Frame,
    FrameReader,
    Hello,
    RunAnswer,
    cobs_decode,
    cobs_encode,
    decode_frame,
    decode_operators,
    decode_tensor,
    encode_frame,
)

FRAMES = st.builds(
    Frame,
    session=st.integers(0, 65535),
    sequence=st.integers(0, 65535),
    kind=st.integers(0, 255),
    status=st.integers(-128, 127),
    payload=st.one_of(st.binary(max_size=600), st.integers(0, 600).map(bytes)),
)


@given(
    st.one_of(st.binary(max_size=1200), st.integers(1, 1200).map(lambda n: b"\1" * n))
)
def test_stuffed_bytes_have_no_zero_and_decode_to_the_same(data: bytes) -> None:
    stuffed = cobs_encode(data)
    assert 0 not in stuffed
    assert len(stuffed) <= len(data) + len(data) // 254 + 1
    assert cobs_decode(stuffed) == data


@pytest.mark.parametrize(
    ("plain", "stuffed"),
    [
        ("00", "0101"),
        ("0000", "010101"),
        ("11220033", "0311220233"),
        ("11223344", "0511223344"),
        ("11000000", "0211010101"),
        ("01" * 254, "ff" + "01" * 254),
        ("01" * 254 + "00", "ff" + "01" * 254 + "0101"),
        ("01" * 255, "ff" + "01" * 254 + "0201"),
    ],
)
def test_stuffing_is_cobs_as_published(plain: str, stuffed: str) -> None:
    assert cobs_encode(bytes.fromhex(plain)).hex() == stuffed


@given(st.binary(max_size=300))
def test_decoding_any_bytes_never_raises(data: bytes) -> None:
    cobs_decode(data)
    decode_frame(data)


@given(st.lists(FRAMES, max_size=5), st.integers(1, 40))
def test_frames_come_out_in_order_however_the_stream_is_cut(
    frames: list[Frame], cut: int
) -> None:
    stream = b"".join(encode_frame(frame) for frame in frames)
    reader = FrameReader()
    seen = [
        frame
        for at in range(0, len(stream), cut)
        for frame in reader.feed(stream[at : at + cut])
    ]
    assert seen == frames


@given(FRAMES, st.binary(min_size=1, max_size=100))
def test_a_frame_after_garbage_is_read(frame: Frame, garbage: bytes) -> None:
    reader = FrameReader()
    assert reader.feed(garbage + encode_frame(frame))[-1] == frame


@given(FRAMES, st.data())
def test_a_frame_with_one_changed_byte_is_never_accepted(
    frame: Frame, data: st.DataObject
) -> None:
    encoded = bytearray(encode_frame(frame))
    at = data.draw(st.integers(1, len(encoded) - 3))
    encoded[at] ^= data.draw(st.integers(1, 255))
    seen = [one for one in FrameReader().feed(bytes(encoded)) if one is not None]
    assert seen == []


def test_endless_garbage_without_a_zero_takes_bounded_memory() -> None:
    reader = FrameReader()
    for _ in range(40):
        reader.feed(b"\x55" * 10_000)
    assert len(reader._pending) < 70_000
    frame = Frame(1, 2, 3)
    assert reader.feed(encode_frame(frame)) == [None, frame]


def test_a_hello_of_another_version_names_both_versions() -> None:
    with pytest.raises(DeviceError) as caught:
        Hello.decode(struct.pack("<HH", 9, 7))
    assert str(caught.value) == (
        "the firmware has link version 9 and ABI 7; this firmwright requires 4 and 2. "
        "Try: rebuild and flash the firmware with this version of firmwright."
    )


@pytest.mark.parametrize(
    "decode", [Hello.decode, RunAnswer.decode, decode_tensor, Fault.decode]
)
def test_an_answer_of_wrong_size_is_a_device_error(decode: object) -> None:
    assert callable(decode)
    with pytest.raises(DeviceError, match=r"has 3 bytes instead of \d+"):
        decode(b"\0\0\0")


def test_an_unknown_dtype_code_is_a_device_error() -> None:
    with pytest.raises(DeviceError, match="unknown dtype code 99"):
        decode_tensor(struct.pack("<BII", 99, 4, 0))


def test_operator_records_are_read_in_order() -> None:
    payload = struct.pack("<QIIQII", 1 << 40, 2, 3, 4, 5, 6)
    assert decode_operators(payload, 2) == [(1 << 40, 2, 3), (4, 5, 6)]


def test_a_fault_names_registers_cause_and_operator() -> None:
    words = [0] * 12
    words[6], words[8] = 0x1234, 1 << 25
    fault = Fault.decode(struct.pack("<HHI12I", 1, 3, 900, *words))
    assert str(fault).startswith(
        "the processor faulted in operator 3 (division by zero): r0=0x"
    )
    assert "pc=0x00001234" in str(fault)
    assert str(fault).endswith(", 900 bytes of stack used")


def test_a_fault_outside_any_operator_names_none() -> None:
    fault = Fault.decode(struct.pack("<HHI12I", 2, 0xFFFF, 0, 2, *[0] * 11))
    assert fault.operator is None
    assert str(fault).startswith(
        "the processor faulted (illegal instruction, value 0x00000000): mcause=0x00000002 mepc="
    )
