"""The loader's slots on a simulated flash whose power goes at every byte, one after another.

After each cut the device starts again: what it starts must be whole, and what was confirmed before
must be there until the new image is confirmed.
"""

import shutil
import struct
import subprocess
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cffi
import pytest

from firmwright.device.bootloader_client import IMAGE_MAGIC, NO_SLOT, SlotState
from firmwright.device.link_protocol import ABI, Status

pytestmark = pytest.mark.host_c

ROOT = Path(__file__).parents[2]
PAGE, SLOT = 256, 1024
POWER_CUT, POWER_STAYS = -100, -1
BOARD = """
#include <stdint.h>
extern uint8_t sim_flash[];
#define FWR_SLOT_COUNT {count}u
#define FWR_SLOT_BASE 0x1000u
#define FWR_SLOT_BYTES 1024u
#define FWR_SLOT_PAGE 256u
#define FWR_FLASH_PLACE(address) (sim_flash + ((address) - FWR_SLOT_BASE))
"""
DECLARATIONS = """
struct fwr_slots {{ uint8_t state[{count}]; uint8_t application; uint8_t model; uint8_t free; }};
extern uint8_t sim_flash[];
extern int32_t sim_power;
extern int32_t sim_stuck;
int32_t sim_update(struct fwr_slots *, const uint8_t *image, uint32_t size, uint32_t crc);
int32_t sim_start(struct fwr_slots *);
int32_t sim_confirm(struct fwr_slots *, uint32_t slot);
void fwr_slots_scan(struct fwr_slots *);
"""


def image_of(seed: int, *, ram: int = 0x100, model: bool = False, size: int = 600) -> bytes:
    entry, start = (0, 0x2001) if model else (0x1100, 0)
    head = struct.pack("<7I", IMAGE_MAGIC, ABI, entry, start, ram, 0, 0x80)
    return head + bytes((seed * 37 + i * 11) & 0xFF for i in range(size - len(head)))


@dataclass
class Device:
    """The flash, and what a start makes of it."""

    c: Any
    ffi: Any
    count: int

    def __post_init__(self) -> None:
        self.slots = self.ffi.new("struct fwr_slots *")

    def update(self, image: bytes, power: int = POWER_STAYS) -> int:
        self.c.sim_power = power
        return int(self.c.sim_update(self.slots, image, len(image), zlib.crc32(image)))

    def start(self, power: int = POWER_STAYS) -> int:
        self.c.sim_power = power
        return int(self.c.sim_start(self.slots))

    def confirm(self, slot: int, power: int = POWER_STAYS) -> int:
        self.c.sim_power = power
        return int(self.c.sim_confirm(self.slots, slot))

    def running(self) -> tuple[bytes, bytes]:
        """Application and model that the last start chose; empty where there is none."""
        return self.content(self.slots.application), self.content(self.slots.model)

    def content(self, slot: int) -> bytes:
        if slot == NO_SLOT:
            return b""
        at = slot * SLOT + SLOT - PAGE
        size = struct.unpack_from("<I", self.flash, at + 8)[0]
        return self.flash[slot * SLOT : slot * SLOT + size]

    @property
    def flash(self) -> bytes:
        return bytes(self.ffi.buffer(self.c.sim_flash, self.count * SLOT))

    @flash.setter
    def flash(self, content: bytes) -> None:
        self.ffi.memmove(self.c.sim_flash, content, len(content))

    def install(self, image: bytes) -> None:
        """Update, trial and confirmation without trouble."""
        self.c.fwr_slots_scan(self.slots)
        slot = self.slots.free
        assert self.update(image) == Status.OK
        assert self.start() == Status.OK
        assert self.confirm(slot) == Status.OK
        self.start()


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Device]:
    compiler = shutil.which("gcc") or shutil.which("clang") or shutil.which("cc")
    made: dict[int, tuple[Any, Any]] = {}

    def device(count: int) -> Device:
        if count not in made:
            folder = tmp_path_factory.mktemp(f"slots{count}")
            (folder / "fwr_board.h").write_text(BOARD.format(count=count))
            runtime = ROOT / "runtime_c"
            flags = ["-std=c99", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"]
            places = [f"-I{place}" for place in (folder, runtime, runtime / "bootloader")]
            files = (
                runtime / "fwr_link.c",
                runtime / "bootloader" / "fwr_slots.c",
                ROOT / "tests" / "runtime" / "simulated_flash.c",
                ROOT / "tests" / "runtime" / "fake_port.c",
            )
            library = folder / "slots.so"
            command = [str(compiler), *flags, *places, *map(str, files), "-o", str(library)]
            subprocess.run(command, check=True)
            ffi = cffi.FFI()
            ffi.cdef(DECLARATIONS.format(count=count))
            made[count] = ffi.dlopen(str(library)), ffi
        found = Device(*made[count], count)
        found.flash = b"\0" * (count * SLOT)
        return found

    return device


def cuts(device: Device, work: Callable[[int], int]) -> Iterator[int]:
    """Does `work` on the flash as it is, cut off after 0, 1, 2... bytes, until it ends by itself.

    Yields after each cut, with the device off.
    """
    before = device.flash
    for power in range(100_000):
        device.flash = before
        if work(power) != POWER_CUT:
            return
        yield power
    pytest.fail("the work never ends")


@pytest.mark.parametrize("count", [2, 3])
def test_an_update_cut_at_any_byte_leaves_the_old_one_and_can_be_done_again(
    count: int, make: Callable[[int], Device]
) -> None:
    device = make(count)
    first, second, third = (image_of(seed) for seed in (1, 2, 3))
    device.install(first)
    device.install(second)
    points = 0
    for _ in cuts(device, lambda power: device.update(third, power)):
        points += 1
        device.start()
        assert device.running() == (second, b"")
        if points % 97 == 0:
            device.install(third)
            assert device.running() == (third, b"")
    assert points > len(third) + 3 * PAGE
    device.start()
    assert device.running() == (third, b"")


@pytest.mark.parametrize("count", [2, 3])
def test_whatever_is_cut_while_a_start_marks_its_trial_the_next_one_is_not_later_than_it(
    count: int, make: Callable[[int], Device]
) -> None:
    device = make(count)
    old, new = image_of(1), image_of(2)
    device.install(old)
    assert device.update(new) == Status.OK
    for _ in cuts(device, device.start):
        device.start()
        assert device.running()[0] in (old, new)
        device.start()
        assert device.running() == (old, b""), "a trial is one start"
    device.start()
    assert device.running() == (old, b"")


def test_a_cut_confirmation_leaves_one_of_both_confirmed(make: Callable[[int], Device]) -> None:
    device = make(2)
    old, new = image_of(1), image_of(2)
    device.install(old)
    device.update(new)
    slot = device.slots.application
    device.start()
    for _ in cuts(device, lambda power: device.confirm(slot, power)):
        device.start()
        assert device.running()[0] in (old, new)
        device.install(image_of(3))
        assert device.running()[0] == image_of(3)
    device.start()
    assert device.running() == (new, b"")


def test_a_model_alone_is_cut_at_any_byte_and_the_one_before_stays(
    make: Callable[[int], Device],
) -> None:
    device = make(3)
    application = image_of(1)
    models = [image_of(seed, model=True) for seed in (5, 6, 7)]
    device.install(application)
    for model in models[:2]:
        device.install(model)
        assert device.running() == (application, model)
    for _ in cuts(device, lambda power: device.update(models[2], power)):
        device.start()
        assert device.running() == (application, models[1])
    device.start()
    assert device.running() == (application, models[2]), "the trial"
    device.start()
    assert device.running() == (application, models[1]), "which nobody confirmed"


def test_with_two_slots_a_new_model_takes_the_place_of_the_last_one(
    make: Callable[[int], Device],
) -> None:
    device = make(2)
    application, one, two = image_of(1), image_of(5, model=True), image_of(6, model=True)
    device.install(application)
    device.install(one)
    for _ in cuts(device, lambda power: device.update(two, power)):
        device.start()
        assert device.running() in ((application, one), (application, b""))
    device.start()
    assert device.running() == (application, two)


def test_a_new_application_ends_the_models_of_the_old_one(make: Callable[[int], Device]) -> None:
    device = make(3)
    device.install(image_of(1))
    device.install(image_of(5, model=True))
    assert device.update(image_of(2)) == Status.OK
    device.start()
    assert device.running() == (image_of(2), b"")
    device.start()
    assert device.running() == (image_of(1), image_of(5, model=True)), "it was not confirmed"
    device.install(image_of(3))
    assert device.running() == (image_of(3), b"")


def test_a_model_that_does_not_suit_the_application_is_refused(
    make: Callable[[int], Device],
) -> None:
    device = make(3)
    assert device.update(image_of(5, model=True)) == Status.UNSUPPORTED, "there is none"
    device.install(image_of(1, ram=0x200))
    assert device.update(image_of(5, ram=0x1FF, model=True)) == Status.UNSUPPORTED
    assert device.update(b"\7" * 600) == Status.UNSUPPORTED, "no image at all"
    assert device.update(image_of(2, size=SLOT)) == Status.RANGE
    device.start()
    assert device.running() == (image_of(1, ram=0x200), b"")


@pytest.mark.parametrize("word", [IMAGE_MAGIC ^ 1, IMAGE_MAGIC + 1])
def test_an_image_that_is_none_by_its_first_word_is_refused(
    word: int, make: Callable[[int], Device]
) -> None:
    device = make(3)
    assert device.update(struct.pack("<I", word) + image_of(1)[4:]) == Status.UNSUPPORTED
    device.start()
    assert device.running() == (b"", b"")


def test_a_model_for_another_interface_is_refused(make: Callable[[int], Device]) -> None:
    device = make(3)
    device.install(image_of(1))
    model = bytearray(image_of(5, model=True))
    struct.pack_into("<I", model, 4, ABI + 1)
    assert device.update(bytes(model)) == Status.UNSUPPORTED
    assert device.update(image_of(5, model=True)) == Status.OK


def test_a_byte_that_the_flash_does_not_keep_ends_the_update(make: Callable[[int], Device]) -> None:
    device = make(3)
    device.install(image_of(1))
    wrong = device.slots.free * SLOT + 100
    assert image_of(2)[100] & 1 == 0
    device.c.sim_stuck = wrong
    try:
        assert device.update(image_of(2)) == Status.IO
    finally:
        device.c.sim_stuck = 0
    device.start()
    assert device.running() == (image_of(1), b"")


def test_the_only_application_is_started_again_though_nobody_confirmed_it(
    make: Callable[[int], Device],
) -> None:
    device = make(2)
    device.update(image_of(1))
    for _ in range(3):
        device.start()
        assert device.running() == (image_of(1), b"")
    assert device.slots.state[device.slots.application] == SlotState.UNCONFIRMED
    assert device.update(image_of(2)) == Status.OK
    device.start()
    assert device.running() == (image_of(2), b"")


def test_a_flash_that_forgets_a_bit_is_not_started_from(make: Callable[[int], Device]) -> None:
    device = make(2)
    device.install(image_of(1))
    device.install(image_of(2))
    newest = device.slots.application
    for at in (0, 300, SLOT - PAGE + 4):
        content = bytearray(device.flash)
        content[newest * SLOT + at] ^= 4
        kept, device.flash = device.flash, bytes(content)
        device.start()
        assert device.running() == (image_of(1), b"")
        device.flash = kept


def test_a_page_that_begins_like_the_one_before_is_erased_all_the_same(
    make: Callable[[int], Device],
) -> None:
    device = make(2)
    one = image_of(1)
    for at in (100, 300, 599):
        device.install(one)
        device.install(image_of(2))
        assert device.slots.free != device.slots.application
        changed = bytearray(one)
        changed[at] ^= 0xFF
        device.install(bytes(changed))
        assert device.running() == (bytes(changed), b"")


def test_an_empty_flash_starts_nothing(make: Callable[[int], Device]) -> None:
    device = make(2)
    for filling in (b"\0", b"\xff", b"\xa5"):
        device.flash = filling * (2 * SLOT)
        assert device.start() == Status.OK
        assert device.running() == (b"", b"")
        assert device.slots.free == 0
