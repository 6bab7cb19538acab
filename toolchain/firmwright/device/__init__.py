"""Connections to running firmware: transports, the link protocol, and sessions."""

from firmwright.device.errors import FaultError, Timeouts
from firmwright.device.fault_report import Fault
from firmwright.device.instruction_counter import (
    FunctionEntry,
    InstructionCount,
    InstructionCounter,
    build_counter_plugin,
    check_plugin_support,
)
from firmwright.device.process_transport import ProcessTransport
from firmwright.device.qemu_process import QemuCommand, start_qemu
from firmwright.device.reconnecting_transport import ReconnectingTransport
from firmwright.device.serial_port import SerialTransport
from firmwright.device.session import DeviceInfo, OperatorCount, RunResult, Session, TensorInfo
from firmwright.device.transport import FaultRates, FaultyTransport, Transport
from firmwright.device.transport_selection import open_transport

__all__ = [
    "DeviceInfo",
    "Fault",
    "FaultError",
    "FaultRates",
    "FaultyTransport",
    "FunctionEntry",
    "InstructionCount",
    "InstructionCounter",
    "OperatorCount",
    "ProcessTransport",
    "QemuCommand",
    "ReconnectingTransport",
    "RunResult",
    "SerialTransport",
    "Session",
    "TensorInfo",
    "Timeouts",
    "Transport",
    "build_counter_plugin",
    "check_plugin_support",
    "open_transport",
    "start_qemu",
]
