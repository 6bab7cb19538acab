"""Intel HEX in, pieces by address; UF2 out."""

import struct
from pathlib import Path

import pytest

from firmwright.base.errors import UsageError
from firmwright.device.flash_image import FlashImage, read_hex, to_uf2


def record(kind: int, address: int, data: bytes) -> str:
    raw = bytes((len(data),)) + address.to_bytes(2, "big") + bytes((kind,)) + data
    return ":" + (raw + bytes((-sum(raw) & 0xFF,))).hex().upper()


def written(folder: Path, *lines: str) -> Path:
    file = folder / "a.hex"
    file.write_text("\n".join(lines) + "\n")
    return file


def test_records_that_touch_become_one_piece_and_bases_count(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        record(4, 0, b"\x08\x00"),
        record(0, 0x0000, b"abcd"),
        record(0, 0x0004, b"efgh"),
        record(0, 0x0010, b"ijkl"),
        record(2, 0, b"\x10\x00"),
        record(0, 0x0002, b"mn"),
        record(5, 0, b"\x08\x00\x00\x01"),
        record(1, 0, b""),
    )
    image = read_hex(file)
    assert image.pieces == (
        (0x10002, b"mn"),
        (0x0800_0000, b"abcdefgh"),
        (0x0800_0010, b"ijkl"),
    )
    assert (image.size_bytes, image.end) == (14, 0x0800_0014)
    assert image.word(0x0800_0004) == int.from_bytes(b"efgh", "little")
    with pytest.raises(UsageError, match="no data at 0x8000006"):
        image.word(0x0800_0006)


@pytest.mark.parametrize(
    "line", ["", ":00", "hello", ":0100000041BF", ":zz", ":02000000410000BD"]
)
def test_a_broken_record_is_an_error_with_its_line(line: str, tmp_path: Path) -> None:
    file = written(tmp_path, record(0, 0, b"a"), line)
    with pytest.raises(UsageError, match=r"a\.hex:2: this is not an Intel HEX record"):
        read_hex(file)


def test_a_file_without_data_and_an_unknown_record_are_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="contains no data"):
        read_hex(written(tmp_path, record(1, 0, b"")))
    with pytest.raises(UsageError, match="unknown record type 9"):
        read_hex(written(tmp_path, record(9, 0, b"")))


def test_chunks_are_aligned_and_padded_with_erased_bytes() -> None:
    image = FlashImage(((0x1002, b"abc"), (0x2000, bytes(10))))
    assert image.chunks(4) == (
        (0x1002, b"abc"),
        (0x2000, bytes(4)),
        (0x2004, bytes(4)),
        (0x2008, bytes(2)),
    )
    assert image.chunks(8, align=4)[0] == (0x1000, b"\xff\xffabc\xff\xff\xff")


def test_uf2_blocks_carry_every_byte_and_the_block_count() -> None:
    image = FlashImage(((0x1000_0000, bytes(range(256)) + b"rest"),))
    content = to_uf2(image, 0xE48BFF56)
    blocks = [content[at : at + 512] for at in range(0, len(content), 512)]
    assert len(blocks) == 2
    for number, block in enumerate(blocks):
        head = struct.unpack_from("<8I", block)
        assert head == (
            0x0A324655,
            0x9E5D5157,
            0x2000,
            0x1000_0000 + 256 * number,
            256,
            number,
            2,
            0xE48BFF56,
        )
        assert len(block) == 512
        assert struct.unpack_from("<I", block, 508) == (0x0AB16F30,)
    assert blocks[0][32 : 32 + 256] == bytes(range(256))
    assert blocks[1][32:37] == b"rest\xff"
