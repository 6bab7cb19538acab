"""A QEMU machine with its link in memory, accessed over the emulator's GDB stub."""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from firmwright.base.errors import DeviceError
from firmwright.boards import Board
from firmwright.device.gdb_client import GdbClient
from firmwright.device.process_transport import ProcessTransport
from firmwright.device.qemu_process import QemuCommand, start_qemu
from firmwright.device.rtt_transport import RttTransport

_START_S: Final = 10.0


class QemuRttTransport(RttTransport):
    """An RTT transport that owns the emulator's process and its debug socket."""

    def __init__(self, process: ProcessTransport, folder: str, board: Board) -> None:
        self._process = process
        self._folder = folder
        ram = board.ram
        try:
            stub = _stub(f"unix:{folder}/gdb")
            super().__init__(stub, ram.start, ram.size_bytes, process.name)
        except BaseException:
            self._end()
            raise

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._end()

    def _end(self) -> None:
        self._process.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def open_qemu_rtt(command: QemuCommand, board: Board) -> QemuRttTransport:
    folder = tempfile.mkdtemp(prefix="firmwright-")
    gdb = str(Path(folder) / "gdb")
    return QemuRttTransport(start_qemu(replace(command, gdb=gdb, has_uart=False)), folder, board)


def _stub(address: str) -> GdbClient:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            return GdbClient(address)
        except DeviceError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.02)
