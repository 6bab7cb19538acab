"""Decoding and diagnosis of fault reports (runtime_c/ABI.md, section 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from firmwright.base.text_sections import read_sections
from firmwright.device.link_protocol import unpack_payload

NO_OPERATOR = 0xFFFF
_GUARD_FAMILY = 4
_UNDEFINED, _DATA_ABORT = 1, 4
"""Vectors of a Cortex-R, by their order after the reset."""
_WATCHDOG = 0x100
"""Added to the register family in a report if the watchdog restarted the firmware."""

_FAULT_REGISTERS = {
    1: [
        "r0",
        "r1",
        "r2",
        "r3",
        "r12",
        "lr",
        "pc",
        "xpsr",
        "cfsr",
        "hfsr",
        "mmfar",
        "bfar",
    ],
    2: [
        "mcause",
        "mepc",
        "mtval",
        "mstatus",
        "ra",
        "sp",
        "a0",
        "a1",
        "a2",
        "a3",
        "a4",
        "a5",
    ],
    5: [
        "exccause",
        "epc1",
        "excvaddr",
        "ps",
        "a0",
        "a1",
        "a2",
        "a3",
        "a4",
        "a5",
        "a6",
        "a7",
    ],
    6: [
        "vector",
        "pc",
        "cpsr",
        "dfsr",
        "dfar",
        "ifsr",
        "sp",
        "lr",
        "r0",
        "r1",
        "r2",
        "r3",
    ],
    3: ["signal", "address_low", "address_high"],
    4: ["below", "distance", "changed", "address"],
}


def _causes(text: str) -> dict[int, str]:
    """Return the causes of a section by their code."""
    causes: dict[int, str] = {}
    for line in text.splitlines():
        code, cause = line.split(" ", 1)
        causes[int(code)] = cause
    return causes


_CFSR_BITS, _MCAUSES, _EXCCAUSES, _VECTORS = map(
    _causes, read_sections(__file__, ".txt").values()
)
_SIGNALS = {
    4: "illegal instruction",
    7: "bus error",
    8: "division by zero",
    11: "bad address",
}
_STACK_FAULTS = {3, 4, 11, 12, 20}
_ADDRESS_VALID = {"mmfar": 7, "bfar": 15}


@dataclass(frozen=True, slots=True)
class Fault:
    """A decoded fault report.

    `operator` is the running operator, or None. `stack_used_bytes` is 0 if unknown.
    `pool` names a pool whose guard bytes changed, in which case the processor did not
    fault. With `watchdog`, the report describes the code that ran when the watchdog
    expired.
    """

    registers: Mapping[str, int]
    operator: int | None
    stack_used_bytes: int
    pool: str = ""
    watchdog: bool = False

    @classmethod
    def decode(cls, payload: bytes) -> Fault:
        fields = unpack_payload("<HHI12I", payload, "fault report")
        family, operator, stack_bytes, *words = fields
        unknown = [f"word{i}" for i in range(12)]
        names = _FAULT_REGISTERS.get(family & ~_WATCHDOG, unknown)
        watchdog = bool(family & _WATCHDOG)
        pool = ""
        if family == _GUARD_FAMILY:
            # Behind the header of 8 bytes and the 4 registers of this family.
            pool = payload[24:].split(b"\0")[0].decode("ascii", "replace")
        return cls(
            registers=dict(zip(names, words, strict=False)),
            operator=None if operator == NO_OPERATOR else operator,
            stack_used_bytes=0 if watchdog else stack_bytes,
            pool=pool,
            watchdog=watchdog,
        )

    def register(self, *names: str) -> int | None:
        """Return the first of these registers that the processor family has."""
        for name in names:
            if name in self.registers:
                return self.registers[name]
        return None

    @property
    def causes(self) -> tuple[str, ...]:
        """The causes in the status registers, with the faulting address if known."""
        registers = self.registers
        cfsr = registers.get("cfsr", 0)
        causes = [text for bit, text in _CFSR_BITS.items() if cfsr >> bit & 1]
        for name, bit in _ADDRESS_VALID.items():
            if cfsr >> bit & 1:
                causes.append(f"at address 0x{registers[name]:08x}")
        if "mcause" in registers:
            code = registers["mcause"]
            causes.append(_MCAUSES.get(code, f"cause {code}"))
            causes.append(f"value 0x{registers['mtval']:08x}")
        if "exccause" in registers:
            code = registers["exccause"]
            causes.append(_EXCCAUSES.get(code, f"cause {code}"))
            causes.append(f"address 0x{registers['excvaddr']:08x}")
        if "vector" in registers:
            vector = registers["vector"]
            causes.append(_VECTORS.get(vector, f"vector {vector}"))
            if vector == _DATA_ABORT:
                causes.append(f"address 0x{registers['dfar']:08x}")
        if "signal" in registers:
            address = registers["address_high"] << 32 | registers["address_low"]
            number = registers["signal"]
            signal = _SIGNALS.get(number, f"signal {number}")
            causes.append(f"{signal}, address 0x{address:x}")
        return tuple(causes)

    @property
    def hint(self) -> str:
        if self.watchdog:
            return (
                "increase watchdog.timeout_ms if the operator may take that long; the "
                "firmware has restarted and can be used again."
            )
        if self.pool:
            return (
                "firmwright verify --board host --check-plan finds the out-of-bounds "
                "access, except in code of backends and custom operators."
            )
        cfsr = self.registers.get("cfsr", 0)
        if any(cfsr >> bit & 1 for bit in _STACK_FAULTS):
            return "give the board a larger stack (limits.stack in board.toml)."
        if cfsr >> 19 & 1:
            return "the core lacks a required unit: check --board and the core's flags."
        is_illegal = self.registers.get("exccause") == 0
        is_illegal = is_illegal or self.registers.get("vector") == _UNDEFINED
        if is_illegal or self.registers.get("mcause") == 2 or cfsr >> 16 & 1:
            return (
                "check that the image was made for this core, and that its flash is "
                "intact."
            )
        return (
            "build with extra=-fsanitize=address for the host, or verify --check-plan, "
            "to see whether the model or the surrounding code accesses memory out of "
            "bounds."
        )

    def __str__(self) -> str:
        if self.pool:
            return self._broken_guard()
        why = f" ({', '.join(self.causes)})" if self.causes else ""
        event = "the processor faulted"
        if self.watchdog:
            event, why = "the watchdog expired and restarted the board", ""
        where = "" if self.operator is None else f" in operator {self.operator}"
        registers = self.registers.items()
        values = " ".join(f"{name}=0x{value:08x}" for name, value in registers)
        stack = ""
        if self.stack_used_bytes:
            stack = f", {self.stack_used_bytes:,} bytes of stack used"
        return f"{event}{where}{why}: {values}{stack}"

    def _broken_guard(self) -> str:
        words = self.registers
        count = words["changed"]
        changed = f"{count} guard byte{'s' if count > 1 else ''}"
        side = "before" if words["below"] else "after"
        when = "between operators"
        if self.operator is not None:
            when = f"during operator {self.operator}"
        return (
            f"out-of-bounds write next to pool {self.pool!r}, detected {when}: "
            f"{changed} {side} it changed, the nearest at distance "
            f"{words['distance']}, address 0x{words['address']:08x}"
        )
