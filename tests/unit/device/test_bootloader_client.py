"""The loader's client against one that is played: what it sends, what it makes of each answer."""

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from firmwright.base.errors import DeviceError, DeviceTimeoutError
from firmwright.device.bootloader_client import (
    IMAGE_MAGIC,
    NO_SLOT,
    BootloaderClient,
    ImageHeader,
    SlotState,
    enter_bootloader,
    read_image_header,
)
from firmwright.device.link_protocol import (
    KIND_ANSWER,
    KIND_STARTED,
    Command,
    Frame,
    FrameReader,
    Status,
    encode_frame,
)

PAGE, SLOT, START = 256, 1024, 0x8000
IMAGE = bytes(range(200)) * 3


@dataclass
class Peer:
    """A loader, or an application that `restarts_into` one; also the transport to it."""

    name: str = "the line"
    is_application: bool = False
    restarts_into: bool = True
    version: int = 1
    worn_at: int | None = None
    commit_status: int = Status.OK
    lost_writes: int = 0
    flash: bytearray = field(default_factory=lambda: bytearray(b"\xff" * 2 * SLOT))
    asked: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    time_s: float = 0.0

    def __post_init__(self) -> None:
        self._reader, self._said = FrameReader(), b""

    def clock(self) -> float:
        return self.time_s

    def read(self, limit: int, timeout_s: float) -> bytes:
        if not self._said:
            self.time_s += max(timeout_s, 0.001)
        data, self._said = self._said[:limit], self._said[limit:]
        return data

    def close(self) -> None:
        """Nothing to close."""

    def write(self, data: bytes) -> None:
        for frame in self._reader.feed(data):
            if frame is not None:
                self.asked.append(frame.kind)
                self.take(frame)

    def say(self, frame: Frame, status: int, payload: bytes = b"") -> None:
        kind = frame.kind | KIND_ANSWER
        self._said += encode_frame(Frame(frame.session, frame.sequence, kind, status, payload))

    def take(self, frame: Frame) -> None:
        if self.is_application:
            self.take_as_application(frame)
            return
        payload = frame.payload
        match frame.kind:
            case Command.BOOTLOADER_HELLO:
                numbers = (self.version, 64, 2, 1, 0, NO_SLOT, START, SLOT, PAGE, 0x2000)
                self.say(frame, Status.OK, struct.pack("<HHBBBBIIII", *numbers) + b"toy")
            case Command.BOOTLOADER_SLOT if payload[0] == 0:
                self.say(frame, Status.OK, struct.pack("<BIIII8s", 3, 7, 600, 5, 0, b"identity"))
            case Command.BOOTLOADER_SLOT:
                self.say(frame, Status.OK, bytes(25))
            case Command.BOOTLOADER_CHECK:
                self.say(frame, Status.OK, struct.pack("<I", zlib.crc32(self.at(payload))))
            case Command.BOOTLOADER_READ:
                self.say(frame, Status.OK, self.at(payload))
            case Command.BOOTLOADER_WRITE:
                self.write_flash(frame)
            case Command.BOOTLOADER_COMMIT:
                self.say(frame, self.commit_status)
            case _:
                self.say(frame, Status.OK)

    def take_as_application(self, frame: Frame) -> None:
        match frame.kind:
            case Command.HELLO | Command.RESET:
                self.say(frame, Status.OK)
            case _:
                self.say(frame, Status.SESSION)
        if frame.kind == Command.RESET:
            self.is_application = not self.restarts_into
            self._said += encode_frame(Frame(0, 0, KIND_STARTED))

    def at(self, payload: bytes) -> bytes:
        slot, offset, size = struct.unpack("<BII", payload)
        return bytes(self.flash[slot * SLOT + offset : slot * SLOT + offset + size])

    def write_flash(self, frame: Frame) -> None:
        if self.lost_writes:
            self.lost_writes -= 1
            return
        slot, offset = struct.unpack_from("<BI", frame.payload)
        assert slot == 1, "the free one"
        data = frame.payload[5:]
        assert len(data) % 4 == 0
        self.sizes.append(len(data))
        at = slot * SLOT + offset
        self.flash[at : at + len(data)] = data
        if self.worn_at is not None:
            self.flash[SLOT + self.worn_at] ^= 1
            self.worn_at = None
        self.say(frame, Status.OK)


def entered(peer: Peer) -> BootloaderClient:
    return enter_bootloader(peer, clock=peer.clock)


def test_the_bootloader_describes_itself_and_its_slots() -> None:
    line = entered(Peer())
    info = line.info
    assert (info.board, info.start, info.slot_bytes, info.room_bytes) == ("toy", START, SLOT, 768)
    assert (info.free, info.application, info.model) == (1, 0, NO_SLOT)
    first, second = line.slots()
    assert (first.state, first.sequence, first.size_bytes) == (SlotState.CONFIRMED, 7, 600)
    assert first.id == b"identity"
    assert second.state == SlotState.EMPTY


def test_only_pages_that_differ_are_sent() -> None:
    peer = Peer()
    seen: list[tuple[int, int]] = []
    assert entered(peer).send(IMAGE, lambda done, whole: seen.append((done, whole))) == 600
    assert seen == [(256, 600), (512, 600), (600, 600)]
    assert max(peer.sizes) == 56, "the largest payload less where it goes, in words"
    assert entered(peer).send(IMAGE) == 0
    changed = bytearray(IMAGE)
    changed[300] ^= 1
    assert entered(peer).send(bytes(changed)) == PAGE
    assert bytes(peer.flash[SLOT : SLOT + 600]) == changed


def test_repeated_losses_reduce_the_piece_size() -> None:
    peer = Peer(lost_writes=5)
    assert entered(peer).send(IMAGE) == 600
    assert max(peer.sizes) == 32
    assert bytes(peer.flash[SLOT : SLOT + 600]) == IMAGE


def test_a_silent_bootloader_is_a_timeout_with_advice() -> None:
    peer = Peer(lost_writes=1_000_000)
    line = entered(peer)
    with pytest.raises(DeviceTimeoutError) as caught:
        line.send(IMAGE)
    assert str(caught.value) == (
        "the line: the bootloader stopped answering within 20 s. Try: flash again; the "
        "transfer resumes, and the previous image is unchanged."
    )


def test_reading_back_detects_wrong_flash_contents() -> None:
    peer = Peer(worn_at=40)
    line = entered(peer)
    line.send(IMAGE)
    with pytest.raises(DeviceError, match=r"at 0x8428 there is 0x29, not 0x28\. Try: flash again"):
        line.verify(IMAGE)


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (Status.IO, "the flash does not retain written data"),
        (Status.UNSUPPORTED, "does not suit the application in the slots. Try: flash the whole"),
        (Status.RANGE, "the slot differs from the image"),
        (Status.COMMAND, "the firmware refused bootloader_commit: unknown command"),
    ],
)
def test_a_rejected_image_names_the_reason(status: Status, says: str) -> None:
    with pytest.raises(DeviceError, match=says):
        entered(Peer(commit_status=status)).commit(IMAGE, b"id")


def test_an_application_is_restarted_into_the_loader() -> None:
    peer = Peer(is_application=True)
    assert entered(peer).info.board == "toy"
    assert [k for k in peer.asked if k < Command.BOOTLOADER_HELLO] == [Command.HELLO, Command.RESET]


def test_a_missing_bootloader_is_reported_early() -> None:
    peer = Peer(is_application=True, restarts_into=False)
    with pytest.raises(
        DeviceError, match=r"there is no bootloader on the board\. Try: firmwright bootloader"
    ):
        entered(peer)
    assert peer.asked.count(Command.RESET) <= 6
    assert peer.time_s < 5


def test_no_answer_is_a_timeout() -> None:
    peer = Peer()
    silent: Callable[[Frame], None] = lambda frame: None  # noqa: E731 - a peer that says nothing
    peer.take = silent  # type: ignore[method-assign]
    with pytest.raises(DeviceTimeoutError, match=r"answered within 3 s\. Try: restart the board"):
        enter_bootloader(peer, patience_s=3, clock=peer.clock)
    assert 3 <= peer.time_s < 5
    assert peer.asked.count(Command.BOOTLOADER_HELLO) > 20, "it knocks often enough to be heard"


def test_a_bootloader_of_another_version_is_rejected() -> None:
    with pytest.raises(DeviceError, match="the bootloader has protocol version 2, not 1"):
        entered(Peer(version=2))


def test_an_image_header_is_recognized() -> None:
    words = (IMAGE_MAGIC, 2, 0x8100, 0, 0x2400, 0x2000, 0x2400)
    data = struct.pack("<7I", *words)
    assert read_image_header(data) == ImageHeader(*words[1:])
    assert read_image_header(data[:-1]) is None
    assert read_image_header(b"\xff" * 28) is None
