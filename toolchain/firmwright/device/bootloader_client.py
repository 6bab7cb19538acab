"""A client of the bootloader (runtime_c/bootloader), which manages firmware in flash slots.

Pages that the free slot already contains are not sent again, so an interrupted transfer resumes.
"""

import contextlib
import struct
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from firmwright.base.errors import DeviceError, DeviceTimeoutError
from firmwright.device import errors
from firmwright.device.flash_image import check_read_back
from firmwright.device.link_protocol import Command, Status, unpack_payload
from firmwright.device.request_channel import Clock, RequestChannel
from firmwright.device.transport import Transport

BOOTLOADER_VERSION: Final = 1
NO_SLOT: Final = 0xFF
RECORD_ID_BYTES: Final = 8
IMAGE_MAGIC: Final = 0x49525746
IMAGE_BYTES: Final = 28
KNOCK_S: Final = 20.0
"""The time limit of greetings; the board may have to be restarted by hand."""
_KNOCKING: Final = errors.Timeouts(
    hello_s=1.0, answer_s=0.5, first_wait_s=0.05, last_wait_s=0.1, started_grace_s=0.0
)
_WORKING: Final = errors.Timeouts(hello_s=5.0, answer_s=20.0)
_RESTARTS_MAX: Final = 5
_WRITE_HEADER_BYTES: Final = 5
_PIECE_MIN_BYTES: Final = 32
_HELLO: Final = "<HHBBBBIIII"
_HELLO_BYTES: Final = struct.calcsize(_HELLO)

ProgressCallback = Callable[[int, int], None]


class SlotState(IntEnum):
    """The state of an image in a slot (`enum fwr_slot_state`)."""

    EMPTY = 0
    UNCONFIRMED = 1
    PENDING = 2
    CONFIRMED = 3


@dataclass(frozen=True, slots=True)
class BootloaderInfo:
    """The bootloader's description of itself; slots are numbers, and NO_SLOT means none."""

    board: str
    payload_bytes: int
    count: int
    free: int
    application: int
    model: int
    start: int
    slot_bytes: int
    page_bytes: int
    handoff: int

    @property
    def room_bytes(self) -> int:
        return self.slot_bytes - self.page_bytes


@dataclass(frozen=True, slots=True)
class SlotInfo:
    """The image in a slot; `base` is the sequence number of a model's application, or 0."""

    number: int
    state: SlotState
    sequence: int
    size_bytes: int
    crc: int
    base: int
    id: bytes


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """The header of an image (`struct fwr_image_words`); `start` is 0 except for a model."""

    abi: int
    entry: int
    start: int
    ram: int
    stack_low: int
    stack_high: int


def read_image_header(data: bytes) -> ImageHeader | None:
    """Decode the header of an image; return None if the bytes are not an image."""
    if len(data) < IMAGE_BYTES:
        return None
    magic, *words = struct.unpack_from("<7I", data)
    return ImageHeader(*words) if magic == IMAGE_MAGIC else None


class BootloaderClient:
    """A connection to the bootloader, opened by `enter_bootloader`."""

    def __init__(self, transport: Transport, *, clock: Clock = time.monotonic) -> None:
        self._transport = transport
        self._line = RequestChannel(transport, _WORKING, clock=clock)
        self.info = self._hello()
        self._piece_bytes = (self.info.payload_bytes - _WRITE_HEADER_BYTES) // 4 * 4

    def slots(self) -> tuple[SlotInfo, ...]:
        return tuple(self._slot(number) for number in range(self.info.count))

    def send(self, image: bytes, progress: ProgressCallback | None = None) -> int:
        """Write `image` into the free slot and return the number of bytes sent."""
        self._require_room(image)
        page, sent = self.info.page_bytes, 0
        for offset in range(0, len(image), page):
            data = image[offset : offset + page]
            if self._check(offset, len(data)) != zlib.crc32(data):
                self._write(offset, data)
                sent += len(data)
            if progress is not None:
                progress(offset + len(data), len(image))
        return sent

    def read(self, slot: int, offset: int, size_bytes: int) -> bytes:
        data = b""
        while len(data) < size_bytes:
            piece = min(self.info.payload_bytes, size_bytes - len(data))
            place = offset + len(data)
            data += self._line.request(Command.BOOTLOADER_READ, slot, place, piece)
        return data

    def verify(self, image: bytes) -> None:
        """Read the free slot back; raise a DeviceError that names the first differing address."""
        slot = self.info.free
        address = self.info.start + slot * self.info.slot_bytes
        check_read_back(self.read(slot, 0, len(image)), image, address, self._transport.name)

    def commit(self, image: bytes, identity: bytes) -> None:
        """Mark the written image as complete and pending, so that the next start runs it."""
        fields = (self.info.free, len(image), zlib.crc32(image))
        padded = identity[:RECORD_ID_BYTES].ljust(RECORD_ID_BYTES, b"\0")
        try:
            self._line.request(Command.BOOTLOADER_COMMIT, *fields, data=padded)
        except errors.RefusedError as refused:
            raise self._not_taken(refused) from refused

    def confirm(self, slot: int) -> None:
        self._line.request(Command.BOOTLOADER_CONFIRM, slot)

    def boot(self) -> None:
        """Start the application; if the answer is lost, it may already be running."""
        with contextlib.suppress(errors.SessionLostError):
            self._line.request(Command.BOOTLOADER_BOOT)

    # ---- Pieces -----------------------------------------------------------------------------

    def _hello(self) -> BootloaderInfo:
        answer = self._line.request(Command.BOOTLOADER_HELLO)
        version, *numbers = unpack_payload(_HELLO, answer[:_HELLO_BYTES], "bootloader's hello")
        if version != BOOTLOADER_VERSION:
            what = f"the bootloader has protocol version {version}, not {BOOTLOADER_VERSION}."
            hint = "build and flash the bootloader with this version of firmwright."
            raise DeviceError(what, where=self._transport.name, hint=hint)
        return BootloaderInfo(answer[_HELLO_BYTES:].decode("ascii", "replace"), *numbers)

    def _slot(self, number: int) -> SlotInfo:
        answer = self._line.request(Command.BOOTLOADER_SLOT, number)
        state, sequence, size, crc, base = unpack_payload("<BIIII", answer[:17], "loader's slot")
        return SlotInfo(number, SlotState(state), sequence, size, crc, base, answer[17:])

    def _check(self, offset: int, size_bytes: int) -> int:
        fields = (self.info.free, offset, size_bytes)
        answer = self._line.request(Command.BOOTLOADER_CHECK, *fields)
        return unpack_payload("<I", answer, "loader's checksum")[0]

    def _write(self, offset: int, page: bytes) -> None:
        at = 0
        while at < len(page):
            data = page[at : at + self._piece_bytes]
            place = (self.info.free, offset + at)
            may_split = self._piece_bytes > _PIECE_MIN_BYTES
            try:
                self._line.request(Command.BOOTLOADER_WRITE, *place, data=data, may_split=may_split)
            except errors.RequestLostError:
                self._piece_bytes = max(_PIECE_MIN_BYTES, self._piece_bytes // 8 * 4)
                continue
            except errors.RefusedError as refused:
                raise self._not_taken(refused) from refused
            at += len(data)

    def _require_room(self, image: bytes) -> None:
        missing = len(image) - self.info.room_bytes
        if missing > 0:
            raise DeviceError(
                f"the image has {len(image):,} bytes; a slot holds "
                f"{self.info.room_bytes:,}: {missing:,} too few.",
                where=self.info.board,
                hint="use a bootloader with fewer slots, a smaller model or --optimize size.",
            )

    def _not_taken(self, refused: errors.RefusedError) -> DeviceError:
        match refused.status:
            case Status.IO:
                what = "the flash does not retain written data"
                hint = "the flash is worn or protected; the previous image is unchanged."
            case Status.UNSUPPORTED:
                what = "the image does not suit the application in the slots"
                hint = "flash the whole application, without --model-only."
            case Status.RANGE:
                what = "the slot differs from the image, or it is not free"
                hint = "flash again; another host may be connected."
            case _:
                return refused
        return DeviceError(f"{what}.", where=self._transport.name, hint=hint)


# ---- Finding it ---------------------------------------------------------------------------------


def enter_bootloader(
    transport: Transport, *, patience_s: float = KNOCK_S, clock: Clock = time.monotonic
) -> BootloaderClient:
    """Connect to the bootloader, restarting a running application.

    Greetings are repeated, because the bootloader listens for only a tenth of a second. Raise
    DeviceTimeoutError if nothing answers.
    """
    deadline = clock() + patience_s
    restarts = 0
    while restarts <= _RESTARTS_MAX:
        line = RequestChannel(transport, _KNOCKING, clock=clock)
        try:
            line.request(Command.BOOTLOADER_HELLO)
            return BootloaderClient(transport, clock=clock)
        except (errors.SessionLostError, errors.FaultError):
            restarts += 1
            _restart(line)
        except errors.RefusedError:
            break
        except DeviceTimeoutError as nobody:
            if clock() >= deadline:
                raise DeviceTimeoutError(
                    f"neither bootloader nor firmware answered within {patience_s:g} s.",
                    where=transport.name,
                    hint="restart the board during the attempt, when the bootloader listens; "
                    "firmwright bootloader --board B builds one.",
                ) from nobody
    what = "the firmware answers, but there is no bootloader on the board."
    hint = "firmwright bootloader --board B builds one; flash it once with another tool."
    raise DeviceError(what, where=transport.name, hint=hint)


def _restart(line: RequestChannel) -> None:
    for command in (Command.HELLO, Command.RESET):
        with contextlib.suppress(errors.SessionLostError, errors.FaultError, DeviceTimeoutError):
            line.request(command)
