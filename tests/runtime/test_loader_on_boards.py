"""The resident loader in QEMU: images through the line, power cut in the middle, going back.

The flash of the emulated board is a file. Power is cut by killing the emulator; another one that is
started with the file has nothing else left.
"""

import contextlib
import json
import os
import random
import signal
import struct
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from faulty_transport import FaultRates, FaultyTransport

from firmwright.artifacts import Image, SourceTree, StackUsage
from firmwright.base.errors import DeviceError, DeviceTimeoutError
from firmwright.boards import Board, load_board
from firmwright.boards.bootloader import (
    BOOTLOADER_BYTES,
    BOOTLOADER_RAM_BYTES,
    Bootloader,
    board_for_bootloader,
)
from firmwright.boards.peripherals import Watchdog
from firmwright.build.image_sizes import read_sizes
from firmwright.build.project_files import bootloader_project_files, project_files
from firmwright.device.bootloader_client import (
    NO_SLOT,
    BootloaderClient,
    SlotState,
    enter_bootloader,
)
from firmwright.device.errors import FaultError
from firmwright.device.link_protocol import Command, decode_frame
from firmwright.device.process_transport import ProcessTransport
from firmwright.device.session import Session
from firmwright.flows.bootloader_flashing import (
    BootloaderFlashResult,
    SlotFirmware,
    flash_via_bootloader,
)

ROOT = Path(__file__).parents[2]
BOARD = "mps2-an386"
RISCV = "qemu-riscv32-virt"
WATCHDOG = Watchdog("cmsdk", 0x4000_8000, timeout_ms=100, clock_hz=25_000_000)
TINY = (ROOT / "tests/runtime/tiny_app.c").read_text()
X = "serving_default_x:0"
ID = ".id = {0, 1,"
RUN = "    .run = run,\n"
HANGS = "static void stuck(void)\n{\n    for (;;) {}\n}\n\n"
CRASHES = 'static void stuck(void)\n{\n    __asm__ volatile(".short 0xde00");\n}\n\n'

pytestmark = pytest.mark.qemu


def tiny(number: int, stuck: str = "") -> SlotFirmware:
    """The tiny model under an id of its own; `stuck` is what it does when it is made ready."""
    text = TINY.replace(ID, f".id = {{{number}, 1,")
    if stuck:
        text = text.replace(
            "const struct fwr_model fwr_app_model", stuck + "const struct fwr_model fwr_app_model"
        ).replace(RUN, RUN + "    .init = stuck,\n")
    identity = bytes((number, *range(1, 15), 255))
    app = SourceTree({"firmware/fwr_app.c": text})
    return SlotFirmware(f"tiny {number}", identity, lambda board: app.merged(project_files(board)))


@dataclass
class Plugged:
    """A board whose flash is a file. Turning it on gives its line."""

    board: Board
    loader: Image
    flash: Path
    line: ProcessTransport | None = None

    def on(self) -> ProcessTransport:
        self.off()
        run = self.board.run
        elf = str(self.loader.elf)
        machine, more = run.machine, (*run.args, "-kernel", elf)
        if self.board.name == BOARD:
            memory = f"memory-backend-file,id=flash,size=16M,mem-path={self.flash},share=on"
            machine, more = f"{machine},memory-backend=flash", (*more, "-object", memory)
        if self.board.name == RISCV:
            with self.flash.open("ab") as file:
                file.truncate(32 << 20)
            drive = f"if=pflash,unit=1,format=raw,file={self.flash}"
            more = ("-bios", elf, "-drive", drive)  # with a drive, a kernel is not what starts
        command = [
            *(run.program, "-machine", machine, *more),
            *("-icount", "shift=0", "-display", "none", "-monitor", "none", "-nodefaults"),
            *("-chardev", "stdio,id=link,signal=off", "-serial", "chardev:link"),
        ]
        self.line = ProcessTransport(command, name="the board")
        return self.line

    def off(self) -> None:
        if self.line is not None:
            self.line.close()
            self.line = None

    def load(
        self, what: SlotFirmware, *, is_model_update: bool = False, verify: bool = False
    ) -> BootloaderFlashResult:
        line = self.on()
        return flash_via_bootloader(
            what, self.board, line, verify=verify, is_model_update=is_model_update
        )

    def model_number(self) -> int:
        """Of what answers after power-on; it computes, too."""
        with Session(self.on()) as session:
            values = np.arange(600, dtype=np.int16).astype(np.int8) & 0x3F
            outputs = session.run({X: values})
            assert np.array_equal(next(iter(outputs.values())), 2 * values)
            return session.info.model_id[0]

    def looked_at(self) -> BootloaderClient:
        return enter_bootloader(self.on())


class CutLine:
    """A line to a board whose power goes while byte `at` of the image is on its way."""

    def __init__(self, inner: ProcessTransport, at: int) -> None:
        self.name, self.read, self.close = inner.name, inner.read, inner.close
        self._inner, self._at = inner, at

    def write(self, data: bytes) -> None:
        frame = decode_frame(data.strip(b"\0"))
        if frame is not None and frame.kind == Command.BOOTLOADER_WRITE:
            (offset,) = struct.unpack_from("<I", frame.payload, 1)
            if offset + len(frame.payload) - 5 > self._at:
                self._inner.write(data[: len(data) // 2])
                os.kill(self._inner.pid, signal.SIGKILL)
                raise DeviceError("the power is cut.", where=self.name)
        self._inner.write(data)


Files = tuple[tuple[str, str | bytes], ...]


def linked(project: SourceTree, folder: Path) -> Image:
    """The image of a project by one command with the project's own flags: SCons takes longer."""
    project.write(folder)
    facts = json.loads((folder / "board" / "board.json").read_text())
    tool, port = facts["toolchain"], facts["port"]
    places = [
        f"-I{place}" for place in ("board", "runtime", "runtime/port", f"runtime/port/{port}")
    ]
    linking = [flag for flag in facts["link_flags"] if flag not in facts["compile_flags"]]
    if facts["fit_stack"]:
        linking.append(f"-Wl,--defsym=fwr_ld_stack_bytes={facts['stack_bytes']}")
    command = [
        *(f"{tool}-gcc", *facts["compile_flags"], *facts["warnings"], "-Os", *places),
        *("firmware/fwr_app.c", *facts["runtime_sources"], *linking, "-o", "image.elf"),
    ]
    copy = [f"{tool}-objcopy", "-O", "binary", "image.elf", "image.bin"]
    for words in (command, copy):
        subprocess.run(words, cwd=folder, check=True)
    elf, none = folder / "image.elf", StackUsage("", 0, ())
    return Image(
        board=facts["name"],
        variant="release",
        directory=folder,
        elf=elf,
        bin=elf.with_suffix(".bin"),
        hex=None,
        library=None,
        sizes=read_sizes(elf, []),
        model_flash_bytes=0,
        model_ram_bytes=0,
        stack=none,
        firmware_stack=none,
    )


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Callable[[SourceTree], Image]:
    """Each image is built once."""
    known: dict[Files, Image] = {}

    def find(project: SourceTree) -> Image:
        files = tuple(project.files.items())
        if files not in known:
            known[files] = linked(project, tmp_path_factory.mktemp("image"))
        return known[files]

    return find


@pytest.fixture
def plugged(
    request: pytest.FixtureRequest,
    images: Callable[[SourceTree], Image],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Plugged]:
    """While an image is built the emulator, which waits at full speed, stands still."""
    board = load_board(getattr(request, "param", BOARD))
    loader = images(bootloader_project_files(board_for_bootloader(board)))
    made = Plugged(board, loader, tmp_path / "flash.bin")

    def build(project: SourceTree) -> Image:
        assert made.line is not None
        os.kill(made.line.pid, signal.SIGSTOP)
        image = images(project)
        os.kill(made.line.pid, signal.SIGCONT)
        return image

    monkeypatch.setattr("firmwright.flows.bootloader_flashing.build_tree", build)
    yield made
    made.off()


@pytest.mark.parametrize(
    "name",
    ["microbit", BOARD, "mps2-an505", pytest.param(RISCV, marks=pytest.mark.qemu("riscv32"))],
)
def test_the_loader_fits_its_4_kib(name: str, images: Callable[[SourceTree], Image]) -> None:
    board = load_board(name)
    if board.bootloader is None:
        start = board.flash.start + BOOTLOADER_BYTES
        board = replace(board, bootloader=Bootloader("memory", start, 0x8000, 0x1000, 2))
    sizes = images(bootloader_project_files(board_for_bootloader(board))).sizes
    assert 2048 < sizes.flash_bytes <= BOOTLOADER_BYTES
    assert sizes.bytes_of("data") == 0, "nothing copies initial values"
    assert sizes.ram_bytes <= BOOTLOADER_RAM_BYTES
    assert sizes.sections[0].address == board.flash.start


@pytest.mark.parametrize(
    ("plugged", "seed"),
    [
        (BOARD, 1),
        *(pytest.param(BOARD, seed, marks=pytest.mark.deep) for seed in range(2, 9)),
        *(
            pytest.param(RISCV, seed, marks=[pytest.mark.deep, pytest.mark.qemu("riscv32")])
            for seed in range(4)
        ),
    ],
    indirect=["plugged"],
)
def test_an_update_cut_in_the_middle_leaves_the_old_firmware_and_is_then_finished(
    plugged: Plugged, seed: int
) -> None:
    chance = random.Random(seed)
    done = plugged.load(tiny(1), verify=True)
    assert (done.slot, done.verified, done.sent_bytes) == (0, True, done.size_bytes)
    assert plugged.model_number() == 1
    for at in (chance.randrange(done.size_bytes), done.size_bytes - 1):
        line = CutLine(plugged.on(), at)
        with pytest.raises(DeviceError, match="the power is cut"):
            flash_via_bootloader(tiny(2), plugged.board, line)
        assert plugged.model_number() == 1
    again = plugged.load(tiny(2), verify=True)
    assert again.slot == 1
    if plugged.board.name == BOARD:
        assert again.sent_bytes < again.size_bytes, "whole pages were there"
    assert plugged.model_number() == 2
    assert plugged.model_number() == 2, "it stays"


@pytest.mark.parametrize(
    ("stuck", "says"),
    [
        pytest.param(
            HANGS,
            "no firmware answered within .* The next restart returns to the previous firmware",
            id="hangs",
        ),
        pytest.param(
            CRASHES,
            "the processor faulted .* The bootloader has returned to slot 0",
            id="crashes",
            marks=pytest.mark.deep,
        ),
    ],
)
def test_a_firmware_that_does_not_answer_is_gone_back_from(
    stuck: str, says: str, plugged: Plugged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firmwright.flows.bootloader_flashing.ANSWER_S", 1.0)
    monkeypatch.setattr("firmwright.flows.bootloader_flashing.GO_BACK_S", 0.5)
    plugged.load(tiny(1))
    with pytest.raises(DeviceError, match="new firmware of tiny 2 was not confirmed: " + says):
        plugged.load(tiny(2, stuck))
    assert plugged.model_number() == 1
    line = plugged.looked_at()
    assert [slot.state for slot in line.slots()] == [
        SlotState.CONFIRMED,
        SlotState.UNCONFIRMED,
        SlotState.EMPTY,
    ]
    assert line.info.application == 0
    assert line.info.free == 2, "an empty one first"


@pytest.mark.parametrize(
    "plugged",
    [BOARD, pytest.param(RISCV, marks=[pytest.mark.deep, pytest.mark.qemu("riscv32")])],
    indirect=True,
)
def test_a_model_alone_replaces_the_model_and_the_application_stays(plugged: Plugged) -> None:
    with pytest.raises(
        DeviceError, match=r"no application is installed .* Try: flash the application first"
    ):
        plugged.load(tiny(3), is_model_update=True)
    whole = plugged.load(tiny(1))
    one = plugged.load(tiny(2), is_model_update=True, verify=True)
    assert one.size_bytes < whole.size_bytes / 3
    assert plugged.model_number() == 2
    line = CutLine(plugged.on(), one.size_bytes // 2)
    with pytest.raises(DeviceError, match="the power is cut"):
        flash_via_bootloader(tiny(3), plugged.board, line, is_model_update=True)
    assert plugged.model_number() == 2
    plugged.load(tiny(3), is_model_update=True)
    assert plugged.model_number() == 3
    info = plugged.looked_at().info
    assert (info.application, info.model, info.free) == (0, 2, 1)


def test_an_image_larger_than_a_slot_is_refused_before_anything_is_sent(plugged: Plugged) -> None:
    with pytest.raises(
        DeviceError, match="only the bootloader answers; no slot holds an application"
    ):
        Session(plugged.on())
    line = plugged.looked_at()
    assert line.info.application == NO_SLOT
    with pytest.raises(DeviceError, match=r"524,288 bytes; a slot holds 520,192: 4,096"):
        line.send(bytes(line.info.slot_bytes))
    with pytest.raises(DeviceError, match="the slot differs from the image"):
        line.commit(b"nothing of this is there", b"")


@pytest.mark.deep
def test_a_watchdog_ends_the_trial_of_a_firmware_that_hangs(plugged: Plugged) -> None:
    plugged.load(tiny(1))
    plugged.board = replace(plugged.board, watchdog=WATCHDOG)
    with pytest.raises(DeviceError, match=r"new firmware of tiny 2 was not confirmed: .* slot 0\."):
        plugged.load(tiny(2, HANGS))
    assert plugged.line is not None
    with Session(plugged.line) as session:
        assert session.info.model_id[0] == 1


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(3))
def test_a_bad_line_changes_nothing_but_the_time(seed: int, plugged: Plugged) -> None:
    line = FaultyTransport(plugged.on(), FaultRates(flip=0.003, drop=0.001), seed=seed)
    done = flash_via_bootloader(tiny(1), plugged.board, line, verify=True)
    assert done.verified
    assert plugged.model_number() == 1


@pytest.mark.parametrize("plugged", ["microbit"], indirect=True)
def test_a_core_that_cannot_move_its_vectors_is_led_to_those_of_the_application(
    plugged: Plugged,
) -> None:
    """The flash is written by the driver of its controller, which this emulator has."""
    done = plugged.load(tiny(1), verify=True)
    assert plugged.line is not None
    with Session(plugged.line) as session:
        crash = np.full(600, -127, np.int8)
        with pytest.raises(FaultError, match="the processor faulted"):
            session.run({X: crash})
        session.reset()
        assert session.info.model_id[0] == 1
    assert done.slot == 0


def test_another_board_and_a_line_without_loader_are_told(plugged: Plugged) -> None:
    other = replace(load_board("mps2-an385"), bootloader=plugged.board.bootloader)
    with pytest.raises(DeviceError, match="the bootloader of board mps2-an386, not mps2-an385"):
        flash_via_bootloader(tiny(1), other, plugged.on())
    silent = ProcessTransport(["cat", "/dev/zero"], name="the line")
    with (
        contextlib.closing(silent),
        pytest.raises(DeviceTimeoutError, match="neither bootloader nor firmware answered"),
    ):
        enter_bootloader(silent, patience_s=0.2)
