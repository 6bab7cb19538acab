"""Flashing over a GDB stub: into an empty QEMU, and into a stub that has flash."""

import re
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from firmwright.artifacts import SourceTree
from firmwright.base.errors import DeviceError, UsageError
from firmwright.boards import load_board
from firmwright.build import build_project
from firmwright.build.project_files import project_files
from firmwright.device.flash_image import FlashImage, read_hex
from firmwright.device.gdb_client import GdbClient
from firmwright.device.qemu_process import QemuCommand, start_qemu, wait_for_gdb_stub
from firmwright.device.session import Session

ROOT = Path(__file__).parents[3]
MAP = (
    '<memory-map><memory type="flash" start="0x8000000" length="0x1000">'
    '<property name="blocksize">0x400</property></memory>'
    '<memory type="ram" start="0x20000000" length="0x1000"/></memory-map>'
)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("mps2-an386", marks=pytest.mark.qemu),
        pytest.param(
            "hifive1-revb", marks=[pytest.mark.qemu("riscv32"), pytest.mark.deep]
        ),
        pytest.param("microbit", marks=[pytest.mark.qemu, pytest.mark.deep]),
        pytest.param("netduinoplus2", marks=[pytest.mark.qemu, pytest.mark.deep]),
        pytest.param("mps2-an505", marks=[pytest.mark.qemu, pytest.mark.deep]),
    ],
)
def test_a_machine_started_empty_is_programmed_verified_and_runs(
    name: str, tmp_path: Path
) -> None:
    board = load_board(name)
    app = (ROOT / "tests/runtime/tiny_app.c").read_text()
    SourceTree({"firmware/fwr_app.c": app}).merged(project_files(board)).write(tmp_path)
    image = build_project(tmp_path)
    assert image.hex is not None
    content = read_hex(image.hex)
    path = tmp_path / "gdb"
    run = board.run
    command = QemuCommand(
        run.machine, None, run.program, tuple(run.args), gdb=str(path)
    )
    transport = start_qemu(command)
    wait_for_gdb_stub(path)
    with GdbClient(f"unix:{path}") as stub:
        with pytest.raises(DeviceError, match=r"at 0x\w+ there is 0x00"):
            stub.verify(content)
        stub.load(content)
        stub.verify(content)
        if board.port == "cortex_m":
            stub.begin_cortex_m(content.start)
        else:
            stub.begin_riscv(content.start)
    with Session(transport) as session:
        x = np.arange(600, dtype=np.int8) % 60
        x[0] = 1
        outputs = session.run({session.info.inputs[0].name: x})
        assert np.array_equal(next(iter(outputs.values())), 2 * x)


@dataclass
class Stub:
    """A debug probe's server: flash needs an erase and takes flash packets alone."""

    flash: bytearray = field(default_factory=lambda: bytearray(0x1000))
    commands: list[bytes] = field(default_factory=list)
    address: str = ""

    def serve(self) -> threading.Thread:
        server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{server.getsockname()[1]}"

        def talk() -> None:
            with server, server.accept()[0] as line:
                received = b""
                while more := line.recv(4096):
                    received += more
                    while found := re.search(
                        rb"\$([^#]*)#([0-9a-f]{2})", received, re.S
                    ):
                        received = received[found.end() :]
                        assert sum(found[1]) & 0xFF == int(found[2], 16)
                        answer = self.answer(found[1])
                        line.sendall(b"+$" + answer + b"#%02x" % (sum(answer) & 0xFF))

        thread = threading.Thread(target=talk, daemon=True)
        thread.start()
        return thread

    def answer(self, command: bytes) -> bytes:
        self.commands.append(command.split(b":")[0].split(b",")[0])
        if command.startswith(b"qSupported"):
            return b"PacketSize=200;qXfer:memory-map:read+"
        if found := re.fullmatch(rb"qXfer:memory-map:read::(\w+),(\w+)", command):
            at, most = int(found[1], 16), min(int(found[2], 16), 100)
            piece = MAP.encode()[at : at + most]
            return (b"l" if at + most >= len(MAP) else b"m") + piece
        if found := re.fullmatch(rb"vFlashErase:(\w+),(\w+)", command):
            self.flash[:] = b"\xff" * len(self.flash)
            return b"OK"
        if found := re.fullmatch(rb"vFlashWrite:(\w+):(.*)", command, re.S):
            at = int(found[1], 16) - 0x8000000
            data = re.sub(
                rb"\}(.)", lambda m: bytes((m[1][0] ^ 0x20,)), found[2], flags=re.S
            )
            for offset, byte in enumerate(data, at):
                self.flash[offset] &= byte
            return b"OK"
        if found := re.fullmatch(rb"m(\w+),(\w+)", command):
            at = int(found[1], 16) - 0x8000000
            return (
                self.flash[at : at + int(found[2], 16)]
                .hex()
                .encode()
                .replace(b"00000000", b"0* ", 1)
            )
        return {b"vFlashDone": b"OK", b"?": b"S05", b"D": b"OK"}.get(command, b"")


def test_flash_of_the_memory_map_is_erased_before_writing() -> None:
    stub = Stub()
    thread = stub.serve()
    image = FlashImage(((0x8000100, bytes(range(256)) + b"#$}*" * 50),))
    with GdbClient(stub.address) as client:
        client.load(image)
        client.verify(image)
        with pytest.raises(
            DeviceError, match=r"failed to write to 0x20000000: .*empty packet"
        ):
            client.write(0x20000000, b"x")
    thread.join(5)
    assert stub.flash[0x100 : 0x100 + image.size_bytes] == image.pieces[0][1]
    assert b"vFlashErase" in stub.commands
    assert stub.commands.index(b"vFlashErase") < stub.commands.index(b"vFlashWrite")
    assert b"vFlashDone" in stub.commands
    assert stub.commands[-1] == b"D"


@pytest.mark.parametrize(
    ("address", "error", "words"),
    [
        ("localhost", UsageError, "'localhost' is not a stub address. Try: HOST:PORT"),
        ("127.0.0.1:1", DeviceError, "cannot connect to the stub"),
        ("unix:/nowhere/at/all", DeviceError, "cannot connect to the stub"),
    ],
)
def test_an_address_without_a_stub_is_a_clear_error(
    address: str, error: Callable[..., Exception], words: str
) -> None:
    with pytest.raises(error, match=words):  # type: ignore[call-overload]
        GdbClient(address)
