"""The runtime's C files one by one, loaded into this process: link, probes, stack mark.

The link is held against the Python side, which test_protocol.py holds against published
vectors.
"""

import re
import shutil
import subprocess
import zlib
from pathlib import Path
from typing import Any

import cffi
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from firmwright.device.link_protocol import (
    ABI,
    DTYPE_NAMES,
    KIND_ANSWER,
    KIND_DAMAGED,
    KIND_FAULT,
    KIND_STARTED,
    LINK_VERSION,
    TAP_ALL,
    Command,
    Frame,
    FrameReader,
    Status,
    cobs_encode,
    encode_frame,
)

pytestmark = pytest.mark.host_c

ROOT = Path(__file__).parents[2]
RUNTIME = ROOT / "runtime_c"
PAYLOAD_MAX = 256

DECLARATIONS = """
struct fwr_link {
    uint32_t length; uint8_t block_left; uint8_t owes_zero; uint8_t broken; uint8_t done;
    uint8_t rx[266];
};
int fwr_link_feed(struct fwr_link *link, uint8_t byte);
void fwr_link_close(uint8_t *frame, uint32_t length);
void fwr_link_send(const uint8_t *frame, uint32_t length);
uint32_t fwr_link_crc32(uint32_t crc, const uint8_t *data, uint32_t size);
void fwr_link_put(uint8_t *at, uint32_t value, uint32_t size);
void fwr_link_put_all(uint8_t *at, const uint32_t *values, uint32_t count, uint32_t size);
uint32_t fwr_link_get(const uint8_t *at, uint32_t size);

uint32_t fwr_stack_used(const void *low, const void *high);

struct fwr_operator { uint64_t count; uint32_t calls; uint32_t checksum; };
struct fwr_model {
    const char *name; uint8_t id[16]; const void *inputs; const void *outputs;
    uint16_t input_count; uint16_t output_count; uint16_t operator_count; uint16_t flags;
    void (*init)(void); int32_t (*run)(void); void *params; uint32_t params_size_bytes;
    uint32_t row_size_bytes; void *row; int32_t (*feed)(uint32_t);
    struct fwr_operator *operators;
};
void fwr_probe(uint32_t operator_index, uint32_t phase, const void *data, uint32_t size_bytes);
void fwr_probe_start(const struct fwr_model *model, _Bool with_checksums);
uint32_t fwr_probe_current(void);

extern uint8_t fake_out[4096];
extern uint32_t fake_out_size;
extern uint64_t fake_now;
extern uint64_t fake_read_cost;
"""
NOTHING, FRAME, DAMAGED = 0, 1, 2


@pytest.fixture(scope="module")
def ffi() -> Any:
    ffi = cffi.FFI()
    ffi.cdef(DECLARATIONS)
    return ffi


@pytest.fixture(scope="module")
def c(ffi: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    compiler = shutil.which("gcc") or shutil.which("clang") or shutil.which("cc")
    library = tmp_path_factory.mktemp("runtime") / "runtime.so"
    sources = [RUNTIME / f"fwr_{name}.c" for name in ("link", "probe", "stack")]
    flags = [
        "-std=c99",
        "-O1",
        "-fPIC",
        "-shared",
        "-DFWR_PROFILE=1",
        "-DFWR_ASSERTIONS=1",
    ]
    flags += [f"-I{RUNTIME}"]
    files = [str(file) for file in (*sources, ROOT / "tests/runtime/fake_port.c")]
    subprocess.run([str(compiler), *flags, *files, "-o", str(library)], check=True)
    return ffi.dlopen(str(library))


quick = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)

FRAMES = st.builds(
    Frame,
    session=st.integers(0, 65535),
    sequence=st.integers(0, 65535),
    kind=st.integers(0, 255),
    status=st.integers(-128, 127),
    payload=st.one_of(
        st.binary(max_size=PAYLOAD_MAX),
        st.integers(0, PAYLOAD_MAX).map(bytes),
        st.integers(0, PAYLOAD_MAX).map(lambda n: b"\7" * n),
    ),
)


def content(frame: Frame) -> bytes:
    numbers = (
        frame.session.to_bytes(2, "little"),
        frame.sequence.to_bytes(2, "little"),
    )
    return b"".join(numbers) + bytes([frame.kind, frame.status & 0xFF]) + frame.payload


@quick
@given(frame=FRAMES)
def test_c_sends_the_bytes_that_python_sends(c: Any, ffi: Any, frame: Frame) -> None:
    plain = content(frame)
    buffer = ffi.new("uint8_t[]", plain + bytes(4))
    c.fake_out_size = 0
    c.fwr_link_close(buffer, len(plain))
    c.fwr_link_send(buffer, len(plain))
    assert bytes(ffi.buffer(c.fake_out, c.fake_out_size)) == encode_frame(frame)


@quick
@given(pieces=st.lists(st.one_of(FRAMES, st.binary(max_size=400)), max_size=6))
@example(pieces=[b"\1" * 3000, Frame(1, 2, 3)])
@example(pieces=[Frame(1, 2, 3, 0, bytes(PAYLOAD_MAX)), b"\xff", Frame(4, 5, 6)])
def test_c_takes_the_frames_that_python_takes(
    c: Any, ffi: Any, pieces: list[Frame | bytes]
) -> None:
    stream = (
        b"".join(p if isinstance(p, bytes) else encode_frame(p) for p in pieces) + b"\0"
    )
    link = ffi.new("struct fwr_link *")
    seen: list[bytes | None] = []
    for byte in stream:
        event = c.fwr_link_feed(link, byte)
        if event == FRAME:
            seen.append(bytes(ffi.buffer(link.rx, link.length)))
        elif event == DAMAGED:
            seen.append(None)
    expected = [None if f is None else content(f) for f in FrameReader().feed(stream)]
    assert seen == expected


def test_a_frame_longer_than_the_buffer_is_damaged_and_the_next_is_read(
    c: Any, ffi: Any
) -> None:
    link = ffi.new("struct fwr_link *")
    stream = encode_frame(Frame(1, 1, 1, 0, bytes(PAYLOAD_MAX + 1))) + encode_frame(
        Frame(1, 2, 3)
    )
    events = [c.fwr_link_feed(link, byte) for byte in stream]
    assert [event for event in events if event != NOTHING] == [DAMAGED, FRAME]


@pytest.mark.parametrize("size", range(236, PAYLOAD_MAX + 1, 2))
def test_runs_as_long_as_a_block_go_both_ways(size: int, c: Any, ffi: Any) -> None:
    """Frames without a zero byte, about the 254 bytes of a full block."""
    frame = Frame(0x0101, 0x0101, 1, 1, b"\7" * size)
    plain, link = content(frame), ffi.new("struct fwr_link *")
    buffer = ffi.new("uint8_t[]", plain + bytes(4))
    c.fake_out_size = 0
    c.fwr_link_close(buffer, len(plain))
    c.fwr_link_send(buffer, len(plain))
    sent = bytes(ffi.buffer(c.fake_out, c.fake_out_size))
    assert sent == encode_frame(frame)
    taken = [
        bytes(ffi.buffer(link.rx, link.length))
        for byte in sent
        if c.fwr_link_feed(link, byte) == FRAME
    ]
    assert taken == [plain]
    assert FrameReader().feed(sent) == [frame]


def test_no_single_bit_that_flips_leaves_a_frame_sound(c: Any, ffi: Any) -> None:
    """Of what the checksum is over, and of itself."""
    plain = content(Frame(0x1234, 7, 3, -2, b"abc"))
    whole = plain + zlib.crc32(plain).to_bytes(4, "little")
    link = ffi.new("struct fwr_link *")
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        stream = b"\0" + cobs_encode(bytes(flipped)) + b"\0"
        events = [c.fwr_link_feed(link, byte) for byte in stream]
        assert [event for event in events if event != NOTHING] == [DAMAGED], bit


def test_a_sound_frame_with_bytes_behind_it_is_damaged(c: Any, ffi: Any) -> None:
    """What the buffer has no room for counts, even where all that it holds is right."""
    plain = content(Frame(1, 1, 1, 0, bytes(PAYLOAD_MAX)))
    whole = plain + zlib.crc32(plain).to_bytes(4, "little")
    link = ffi.new("struct fwr_link *")
    events = [
        c.fwr_link_feed(link, b) for b in b"\0" + cobs_encode(whole + b"\1\2") + b"\0"
    ]
    assert [event for event in events if event != NOTHING] == [DAMAGED]


@quick
@given(data=st.binary(max_size=100), cut=st.integers(0, 100))
def test_crc_is_zlibs_and_goes_on_across_pieces(c: Any, data: bytes, cut: int) -> None:
    first, rest = data[:cut], data[cut:]
    crc = c.fwr_link_crc32(0, first, len(first))
    assert c.fwr_link_crc32(crc, rest, len(rest)) == zlib.crc32(data)


@given(value=st.integers(0, 2**32 - 1), size=st.sampled_from([1, 2, 4]))
@quick
def test_integers_are_little_endian(c: Any, ffi: Any, value: int, size: int) -> None:
    buffer = ffi.new("uint8_t[9]", b"\xaa" * 9)
    c.fwr_link_put_all(buffer, [value, 1], 2, size)
    expected = (value % 2 ** (8 * size)).to_bytes(size, "little")
    one = (1).to_bytes(size, "little")
    assert bytes(buffer) == expected + one + b"\xaa" * (9 - 2 * size)
    assert c.fwr_link_get(buffer, size) == int.from_bytes(expected, "little")


def numbers_in(header: str, pattern: str) -> dict[str, int]:
    text = (RUNTIME / header).read_text()
    return {
        name: int(value, 0) for name, value in re.findall(pattern + r" = (-?\w+)", text)
    }


def test_commands_and_status_codes_are_the_same_on_both_sides() -> None:
    commands = numbers_in("fwr_server.h", r"FWR_(\w+)")
    assert commands == {command.name: command.value for command in Command}
    codes = numbers_in("fwr.h", r"FWR_(?:E_)?(OK|BUSY|PAUSED|(?<=E_)\w+)")
    assert codes == {status.name: status.value for status in Status}
    dtypes = numbers_in("fwr.h", r"FWR_((?:U?INT|B?FLOAT)\d+\w*|BOOL)")
    assert {value: name.lower() for name, value in dtypes.items()} == DTYPE_NAMES


def test_the_protocol_lists_the_types_of_the_header() -> None:
    text = (RUNTIME / "ABI.md").read_text().partition("Dtypes: ")[2]
    listed = re.findall(r"\b(\d+) (\w*\d\w*|bool)", text.partition("\n\n")[0])
    assert {int(number): name for number, name in listed} == DTYPE_NAMES


@pytest.mark.parametrize(
    ("header", "line"),
    [
        ("fwr.h", f"#define FWR_ABI {ABI}"),
        ("fwr_server.h", f"#define FWR_LINK_VERSION {LINK_VERSION}u"),
        ("fwr_server.h", f"#define FWR_KIND_ANSWER {KIND_ANSWER:#x}u"),
        ("fwr_server.h", f"#define FWR_TAP_ALL {TAP_ALL:#x}u"),
        ("fwr_server.h", f"#define FWR_KIND_STARTED {KIND_STARTED:#x}u"),
        ("fwr_server.h", f"#define FWR_KIND_DAMAGED {KIND_DAMAGED:#x}u"),
        ("fwr_server.h", f"#define FWR_KIND_FAULT {KIND_FAULT:#x}u"),
    ],
)
def test_versions_and_kinds_are_the_same_on_both_sides(header: str, line: str) -> None:
    assert line in (RUNTIME / header).read_text()


def test_stack_mark_is_the_lowest_word_without_paint(c: Any, ffi: Any) -> None:
    paint = 0xC5A35AC5
    words = ffi.new("uint32_t[8]", [paint, paint, paint, 7, paint, 0, 1, 2])
    assert c.fwr_stack_used(words, words + 8) == 4 * 5
    assert c.fwr_stack_used(words, words + 3) == 0


def test_probes_take_their_own_cost_away(c: Any, ffi: Any) -> None:
    records = ffi.new("struct fwr_operator[2]")
    model = ffi.new("struct fwr_model *", {"operator_count": 2, "operators": records})
    output = ffi.new("uint8_t[4]", [1, 2, 3, 4])
    c.fake_read_cost = 9
    c.fwr_probe_start(model, 1)
    for work in (1000, 0, 50):
        c.fwr_probe(1, 0, output, 4)
        assert c.fwr_probe_current() == 1
        c.fake_now += work
        c.fwr_probe(1, 1, output, 4)
    c.fwr_probe(7, 0, output, 4)
    c.fwr_probe(7, 1, output, 4)  # an index out of range must touch nothing
    assert c.fwr_probe_current() == 0xFFFF
    assert (records[0].count, records[0].calls, records[0].checksum) == (0, 0, 0)
    assert (records[1].count, records[1].calls) == (1050, 3)
    assert records[1].checksum == zlib.crc32(bytes([1, 2, 3, 4]) * 3)
    c.fwr_probe_start(model, 0)
    assert records[1].calls == 0
