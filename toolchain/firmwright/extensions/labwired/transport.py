"""Firmware in LabWired, whose UART is the byte stream.

LabWired (PyPI `labwired`) simulates a chip with its clock tree, pins and UARTs, in this
process and in virtual time: the chip runs only while `read` waits for bytes.

    read --> run 1 ms of virtual time --> bytes of the UART? --> return them
                  ^                             | none
                  +-----------------------------+

A chip is named by its board (`[emulator]`), or by a port `labwired://CHIP`.
"""

import importlib
import json
import re
import tempfile
import time
import tomllib
from importlib import resources
from pathlib import Path
from typing import Final, Protocol, cast

from firmwright.base.errors import DeviceError, ToolMissingError, UsageError
from firmwright.device.emulator_clock import EmulatorClock
from firmwright.device.transport import Transport
from firmwright.device.transport_plugins import TransportRequest
from firmwright.extensions.labwired.simulated_image import make_simulated_image

TRANSPORT: Final = "labwired"
_STEP: Final = "1ms"
"""The virtual time between two looks at the UART."""
_MISSING: Final = "missing_peripherals.toml"
_MODULE: Final = "labwired"
_CHIP: Final = re.compile(r"[A-Za-z0-9_-]+")
_WAKING: Final = {"nrf5340": 0x5000_8080, "nrf54l15": 0x500C_609C}
"""The register whose write lets the UART of a chip see the bytes that were sent to it.

LabWired 0.25 looks at the received bytes of these UARTs only after a write to any
register, and firmware that polls for the end of a transfer writes none. The registers
are SUBSCRIBE_STARTRX and SUBSCRIBE_FLUSHRX, which are 0.
"""


class _Simulation(Protocol):
    """The used part of LabWired's class Sim."""

    def run_for(self, duration: str) -> object: ...
    def read_uart_bytes(self) -> bytes: ...
    def send_bytes(self, data: bytes) -> None: ...
    def read_u32(self, address: int) -> int: ...
    def write_u32(self, address: int, value: int) -> None: ...
    def close(self) -> None: ...


def open_transport(request: TransportRequest) -> Transport:
    """Start the image of `request` on the chip of its port, or else of its board."""
    chip = request.port.partition("://")[2]
    emulator = request.board.emulator
    if not chip and emulator is not None and emulator.transport == TRANSPORT:
        chip = emulator.chip
    if not chip:
        what = "LabWired has no chip of this board."
        hint = f"name one of its chips: --port {TRANSPORT}://stm32f401."
        raise UsageError(what, where=request.board.name, hint=hint)
    if request.loads:
        what = "LabWired loads no file besides the image."
        hint = "link all constants into the image, without --const-pool."
        raise UsageError(what, where=request.board.name, hint=hint)
    return LabWiredTransport(_start(request, chip), chip)


def _start(request: TransportRequest, chip: str) -> _Simulation:
    if not _CHIP.fullmatch(chip):
        what = f"{chip!r} is not the name of a chip."
        hint = f"give one like --port {TRANSPORT}://stm32f401."
        raise UsageError(what, where="--port", hint=hint)
    try:
        module = importlib.import_module(_MODULE)
    except ImportError as error:
        hint = "pip install 'firmwright[labwired]'."
        what = "LabWired is not installed."
        raise ToolMissingError(what, where=chip, hint=hint) from error
    description = Path(str(module.__file__)).parent / "configs/chips" / f"{chip}.yaml"
    if not description.is_file():
        hint = f"see the folder {description.parent}."
        raise UsageError("LabWired has no such chip.", where=chip, hint=hint)
    with tempfile.TemporaryDirectory() as folder:
        elf = _write_image(request, Path(folder))
        missing = _missing_peripherals(chip)
        try:
            if not missing:
                return cast(_Simulation, module.Sim(elf, chip=chip))
            system = _write_system(description, missing, Path(folder))
            return cast(_Simulation, module.Sim(elf, system=system))
        except ValueError as error:
            hint = "is the image that of a board with this chip?"
            raise UsageError(f"LabWired: {error}.", where=chip, hint=hint) from error


def _write_image(request: TransportRequest, folder: Path) -> Path:
    """Return the image without instructions that LabWired lacks, if it has such."""
    if request.board.port != "cortex_m":
        return request.elf
    image = make_simulated_image(request.elf, request.board)
    if image is None:
        return request.elf
    file = folder / request.elf.name
    file.write_bytes(image)
    return file


def _missing_peripherals(chip: str) -> object:
    """Return the peripherals to add to a chip, in LabWired's words; or None."""
    text = resources.files(__package__).joinpath(_MISSING).read_text(encoding="utf-8")
    return tomllib.loads(text).get(chip)


def _write_system(description: Path, missing: object, folder: Path) -> Path:
    """Write a system of a chip and its missing peripherals, as JSON, which is YAML."""
    system = {"name": "board", "chip": str(description), "peripherals": missing}
    file = folder / "system.yaml"
    file.write_text(json.dumps(system), encoding="utf-8", newline="\n")
    return file


class LabWiredTransport:
    """A simulated chip, by LabWired's name of it."""

    def __init__(self, simulation: _Simulation, chip: str) -> None:
        self.name = f"LabWired's {chip}"
        self._waking = _WAKING.get(chip)
        self._simulation: _Simulation | None = simulation
        self._clock = EmulatorClock(time.thread_time)
        self._received = b""

    def time_s(self) -> float:
        return self._clock()

    def read(self, limit: int, timeout_s: float) -> bytes:
        simulation = self._running()
        deadline = self._clock() + timeout_s
        while not self._received:
            try:
                simulation.run_for(_STEP)
            except (RuntimeError, ValueError) as error:
                hint = "LabWired may not model an instruction or a peripheral."
                raise DeviceError(str(error), where=self.name, hint=hint) from error
            self._received = simulation.read_uart_bytes()
            if self._clock() > deadline:
                break
        data, self._received = self._received[:limit], self._received[limit:]
        return data

    def write(self, data: bytes) -> None:
        simulation = self._running()
        simulation.send_bytes(data)
        if self._waking is not None:
            simulation.write_u32(self._waking, 0)

    def set_baud(self, baud: int) -> None:
        """Accept `baud`: the simulated line is as fast as the chip's UART sends."""

    def close(self) -> None:
        if self._simulation is not None:
            self._simulation.close()
            self._simulation = None

    def _running(self) -> _Simulation:
        if self._simulation is None:
            raise DeviceError("the simulation has ended.", where=self.name)
        return self._simulation
