"""The way to running firmware: transports, the link's protocol, and the session on top of both."""

from firmwright.device.connect import open_transport
from firmwright.device.counting import Cell, InstructionCounter, Step, build_plugin, check_plugins
from firmwright.device.faults import Fault
from firmwright.device.host_process import ProcessTransport
from firmwright.device.qemu import QemuCommand, start_qemu
from firmwright.device.reconnecting import ReconnectingTransport
from firmwright.device.serial_port import SerialTransport
from firmwright.device.session import (
    DeviceInfo,
    FaultError,
    OperatorCount,
    RunResult,
    Session,
    TensorInfo,
    Timeouts,
)
from firmwright.device.transport import FaultRates, FaultyTransport, Transport

__all__ = [
    "Cell",
    "DeviceInfo",
    "Fault",
    "FaultError",
    "FaultRates",
    "FaultyTransport",
    "InstructionCounter",
    "OperatorCount",
    "ProcessTransport",
    "QemuCommand",
    "ReconnectingTransport",
    "RunResult",
    "SerialTransport",
    "Session",
    "Step",
    "TensorInfo",
    "Timeouts",
    "Transport",
    "build_plugin",
    "check_plugins",
    "open_transport",
    "start_qemu",
]
