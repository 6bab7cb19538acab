"""The runtime on emulated boards with the tiny model: results, counts, faults, size."""

import contextlib
import os
import signal
import socket
import subprocess
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from firmwright.artifacts import Image, SourceTree
from firmwright.base.errors import DeviceError
from firmwright.boards import Board, load_board
from firmwright.boards.new_board import copy_board
from firmwright.build import build_project
from firmwright.build.compiler_flags import WARNINGS
from firmwright.build.project_files import project_files
from firmwright.device.errors import FaultError
from firmwright.device.process_transport import ProcessTransport
from firmwright.device.serial_port import SerialTransport
from firmwright.device.session import Session
from firmwright.device.transport import Transport
from firmwright.device.transport_selection import open_transport
from firmwright.flows.board.fault_diagnosis import find_source_lines
from tests.runtime.faulty_transport import FaultRates, FaultyTransport
from tests.runtime.tiny_sessions import Y

ROOT = Path(__file__).parents[2]
SIZE = 600
X = "serving_default_x:0"
HANG, CRASH = -128, -127

FLAGS = ["-std=c99", *WARNINGS, "-DFWR_PROFILE=1", f"-I{ROOT / 'runtime_c'}"]
RUNTIME_FLASH_MAX_BYTES = 6 * 1024
RUNTIME_RAM_MAX_BYTES = 512

ARM_BOARDS = [
    "microbit",
    "mps2-an505",
    "mps3-an547",
    "netduinoplus2",
    "stm32vldiscovery",
]
DEEP_ARM_BOARDS = ["mps2-an385", "mps2-an386", "mps2-an500", "mps2-an521", "mps3-an524"]
"""Boards that share drivers and fault registers with one of ARM_BOARDS."""
BOARDS = [
    *(pytest.param(name, marks=pytest.mark.qemu) for name in ARM_BOARDS),
    *(
        pytest.param(name, marks=[pytest.mark.qemu, pytest.mark.deep])
        for name in DEEP_ARM_BOARDS
    ),
    *(
        pytest.param(name, marks=pytest.mark.qemu("riscv32"))
        for name in ("hifive1-revb", "qemu-riscv32-virt")
    ),
    pytest.param("qemu-xtensa-lx106", marks=pytest.mark.qemu("xtensa")),
    pytest.param("qemu-cortex-r5f", marks=pytest.mark.qemu),
]

Build = Callable[[str], Image]


@pytest.fixture(scope="session")
def build_tiny(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """The tiny model's profile image for a board."""
    images: dict[str, Image] = {}
    app = (ROOT / "tests/runtime/tiny_app.c").read_text()

    def build(name: str) -> Image:
        if name not in images:
            folder = tmp_path_factory.mktemp(name)
            SourceTree({"firmware/fwr_app.c": app}).merged(
                project_files(load_board(name))
            ).write(folder)
            images[name] = build_project(folder, "profile")
        return images[name]

    return build


def ramp(first: int = 1) -> dict[str, NDArray[Any]]:
    values = (np.arange(SIZE) % 60).astype(np.int8)
    values[0] = first
    return {X: values}


def is_doubled(outputs: dict[str, NDArray[Any]], first: int = 1) -> bool:
    return bool(np.array_equal(next(iter(outputs.values())), 2 * ramp(first)[X]))


def is_the_crash(name: str, image: Image, error: FaultError) -> bool:
    """Whether the report leads to the line of tiny_app.c that crashes."""
    address = error.fault.register("pc", "mepc", "epc1")
    assert address is not None
    (places,) = find_source_lines(
        image.elf, [address], toolchain=load_board(name).toolchain
    )
    lines = (ROOT / "tests/runtime/tiny_app.c").read_text().splitlines()
    assert places[0].file == "firmware/fwr_app.c"
    return (
        "__asm__ volatile" in lines[places[0].line - 1] and places[-1].function == "run"
    )


def tells_the_core(words: tuple[int, ...], board: Board) -> bool:
    """Whether these are CPUID of Arm (implementer 0x41), or those of another core.

    Those of the LX106 are CONFIGID0 and CONFIGID1 of its configuration, as in QEMU's
    target/xtensa/core-lx106/core-isa.h.
    """
    if board.is_host:
        return words == ()
    if board.port == "riscv32":
        return len(words) == 3
    if board.port == "xtensa":
        return words == (0xC28CDAFA, 0x1082B6F6)
    return len(words) == 1 and words[0] >> 24 == 0x41


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", BOARDS)
def test_the_tiny_model_runs_counts_faults_and_revives(
    name: str, build_tiny: Build
) -> None:
    image = build_tiny(name)
    board = load_board(name)
    with Session(open_transport(board, image.elf, through_memory=True)) as session:
        assert session.run(ramp(7))[Y].tolist() == (2 * ramp(7)[X]).tolist()
        through_memory = session.measure(ramp())
        taps = dict(session.taps())
        assert taps[0] == session.read_outputs()[Y].tobytes()
    with Session(open_transport(board, image.elf)) as session:
        assert session.measure(ramp()) == through_memory
        assert session.info.board == name
        assert session.info.counter_unit == "instructions"
        assert is_doubled(session.run(ramp()))
        counts = [session.measure(ramp()) for _ in range(4)]
        assert len(set(counts)) == 1, "a count repeats exactly"
        assert SIZE * 3 < counts[0] < SIZE * 20
        session.execute(checksums=True)
        double, _ = session.profile()
        expected = bytes(2 * int(value) for value in ramp()[X])
        assert (double.calls, double.checksum) == (1, zlib.crc32(expected))
        assert 0 < double.count <= counts[0]
        assert 0 < session.stack_bytes() < session.info.stack_bytes
        assert tells_the_core(session.identity(), load_board(name))
        with pytest.raises(FaultError) as caught:
            session.run(ramp(CRASH))
        assert caught.value.fault.operator == 0
        assert 0 < caught.value.fault.stack_used_bytes < session.info.stack_bytes
        assert is_the_crash(name, image, caught.value)
        session.reset()
        assert session.run(ramp(5))["runs"].tolist() == [1]


@pytest.mark.sampled(2)
@pytest.mark.qemu
@pytest.mark.parametrize(
    ("name", "payload"), [("stm32vldiscovery", 64), ("netduinoplus2", 256)]
)
def test_a_clock_that_does_not_come_up_is_told_and_the_board_runs_on_its_reset_clock(
    name: str, payload: int, build_tiny: Build
) -> None:
    """The emulator has no clock tree: the flags of crystal and PLL are never set."""
    with Session(open_transport(load_board(name), build_tiny(name).elf)) as session:
        assert session.info.start_up_text == "reset clock: crystal or PLL not ready"
        assert session.info.payload_max_bytes == payload


@pytest.mark.qemu
@pytest.mark.deep
def test_an_m7_with_its_caches_on_computes_the_same(tmp_path: Path) -> None:
    """The emulator has no caches, but the registers that empty and enable them."""
    file = copy_board("cached", "mps2-an500", tmp_path)
    file.write_text("caches = true\n" + file.read_text())
    board = load_board("cached", (tmp_path,))
    app = (ROOT / "tests/runtime/tiny_app.c").read_text()
    SourceTree({"firmware/fwr_app.c": app}).merged(project_files(board)).write(
        tmp_path / "project"
    )
    image = build_project(tmp_path / "project")
    assert "fwr_caches_init" in {symbol.name for symbol in image.sizes.symbols}
    with Session(open_transport(board, image.elf)) as session:
        assert is_doubled(session.run(ramp()))


@pytest.mark.qemu("riscv32")
def test_a_clock_that_comes_up_says_nothing(build_tiny: Build) -> None:
    """The emulator has the FE310's: the PLL locks and is selected."""
    name = "hifive1-revb"
    with Session(open_transport(load_board(name), build_tiny(name).elf)) as session:
        assert session.info.start_up_text == ""


@pytest.mark.qemu
def test_one_percent_of_flipped_bytes_to_an_emulated_board_changes_no_result(
    build_tiny: Build,
) -> None:
    image = build_tiny("mps2-an386")
    line = open_transport(load_board("mps2-an386"), image.elf)
    with Session(FaultyTransport(line, FaultRates(flip=0.01), seed=3)) as session:
        for number in (1, 2):
            outputs = session.run(ramp(number))
            assert is_doubled(outputs, number)
            assert outputs["runs"].tolist() == [number]


class RatedLine:
    """A process as a line with a rate, of which an emulator takes no notice."""

    def __init__(self, inner: Transport) -> None:
        self.name, self.read, self.write, self.close = (
            inner.name,
            inner.read,
            inner.write,
            inner.close,
        )
        self.bauds: list[int] = []

    def set_baud(self, baud: int) -> None:
        self.bauds.append(baud)


@pytest.mark.qemu
def test_a_uart_takes_the_rates_that_its_clock_can_give(build_tiny: Build) -> None:
    image = build_tiny("mps2-an386")
    line = RatedLine(open_transport(load_board("mps2-an386"), image.elf))
    with Session(line) as session:
        assert session.set_baud(921600)
        assert is_doubled(session.run(ramp()))
        assert not session.set_baud(2_000_000), "25 MHz over 12.5 is off by 4 percent"
        assert is_doubled(session.run(ramp(2)), 2)
    assert line.bauds == [921600]


@pytest.mark.qemu
def test_killing_the_emulator_in_the_middle_of_a_run_is_a_clear_error(
    build_tiny: Build,
) -> None:
    transport = open_transport(load_board("mps2-an386"), build_tiny("mps2-an386").elf)
    assert isinstance(transport, ProcessTransport)
    with Session(transport) as session:
        session.write_inputs(ramp(HANG))
        timer = threading.Timer(0.5, os.kill, (transport.pid, signal.SIGKILL))
        timer.start()
        with pytest.raises(
            DeviceError, match=r"qemu-system-arm .* was killed by SIGKILL"
        ):
            session.execute()
        timer.join()


@pytest.mark.qemu
def test_the_link_runs_over_a_tcp_socket_and_notices_its_end(build_tiny: Build) -> None:
    inner = open_transport(load_board("mps2-an386"), build_tiny("mps2-an386").elf)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        hang_up = threading.Event()

        def bridge() -> None:
            connection, _ = server.accept()
            with connection:
                connection.settimeout(0.01)
                while not hang_up.is_set():
                    with contextlib.suppress(TimeoutError):
                        inner.write(connection.recv(4096))
                    connection.sendall(inner.read(4096, 0.01))

        thread = threading.Thread(target=bridge)
        thread.start()
        url = f"socket://127.0.0.1:{port}"
        with Session(SerialTransport(url)) as session:
            assert is_doubled(session.run(ramp()))
            hang_up.set()
            thread.join()
            inner.close()
            with pytest.raises(DeviceError, match=f"{url}: the port failed"):
                session.run(ramp())


def test_a_port_that_does_not_exist_is_a_clear_error() -> None:
    with pytest.raises(
        DeviceError, match="/dev/no-such-port: the port cannot be opened"
    ):
        SerialTransport("/dev/no-such-port")


def test_a_port_that_is_in_use_is_refused_and_free_again_when_closed() -> None:
    ours, theirs = os.openpty()
    try:
        port = os.ttyname(theirs)
        first = SerialTransport(port)
        with pytest.raises(DeviceError, match="the port is in use by another program"):
            SerialTransport(port)
        first.close()
        SerialTransport(port).close()
    finally:
        os.close(ours)
        os.close(theirs)


@dataclass(frozen=True)
class Size:
    flash_bytes: int
    ram_bytes: int


def link_and_loop(folder: Path) -> Size:
    """What the files of link and main loop take on an M4, by `size`."""
    objects = []
    for source in sorted((ROOT / "runtime_c").glob("*.c")):
        objects.append(folder / f"{source.stem}.o")
        command = ["arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb", "-Os", *FLAGS]
        subprocess.run(
            [*command, "-c", str(source), "-o", str(objects[-1])], check=True
        )
    report = subprocess.run(
        ["arm-none-eabi-size", *map(str, objects)],
        check=True,
        capture_output=True,
        text=True,
    )
    rows = [
        [int(n) for n in line.split()[:3]] for line in report.stdout.splitlines()[1:]
    ]
    return Size(
        sum(text + data for text, data, _ in rows), sum(d + bss for _, d, bss in rows)
    )


@pytest.mark.qemu
def test_link_and_loop_fit_their_budget_on_an_m4(tmp_path: Path) -> None:
    size = link_and_loop(tmp_path)
    assert size.flash_bytes <= RUNTIME_FLASH_MAX_BYTES
    assert size.ram_bytes <= RUNTIME_RAM_MAX_BYTES
