"""Worst-case stack analysis of a linked image, from objdump's disassembly.

A function's frame is the larger of the `.su` file's value and that of its instructions. Indirect
calls in the model may reach the glue's reader and device functions; those in the runtime (through
`struct fwr_model`) its other functions, except jobs of other cores, which the core driver calls.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from firmwright.artifacts import StackUsage
from firmwright.base.c_identifiers import without_abi_hash
from firmwright.base.errors import ToolFailedError

_HEADER: Final = re.compile(r"^([0-9a-f]+) <([^>]+)>:$")
_LINE: Final = re.compile(r"^\s*([0-9a-f]+):\t(?:[0-9a-f ]+\t)?(\S+)(?:\s+(.*))?$")
_BRANCH: Final = re.compile(
    r"(?:b|blx?|b(?:eq|ne|cs|cc|hs|lo|mi|pl|vs|vc|hi|ls|ge|lt|gt|le))(?:\.[nw])?"
    r"|cbn?z|jal|b(?:eq|ne|lt|ge|ltu|geu|gt|le|gtu|leu)z?|callq?|j[a-z]*"
)
_TARGET: Final = re.compile(r"\b([0-9a-f]+) <")
_ARM_LIST: Final = re.compile(r"\{([^}]*)\}")
_ARM_RANGE: Final = re.compile(r"([a-z]+)(\d+)-[a-z]+(\d+)")
# Instructions that lower the stack pointer by a constant, and the numeric base of the constant.
_LOWERING: Final = (
    (re.compile(r"subw?(?:\.w)? (?:sp, )?sp, #(\d+)"), 10),  # Arm
    (re.compile(r"sub sp, #(\d+)"), 10),
    (re.compile(r"strd?(?:\.w)? .*\[sp, #-(\d+)\]!"), 10),
    (re.compile(r"addi? sp,sp,-(\d+)"), 10),  # RISC-V
    (re.compile(r"subq? \$0x([0-9a-f]+),%rsp"), 16),  # x86
)


MODEL_CALLBACK_PREFIXES: Final = ("read_constants", "start_", "wait_for_")
"""Name prefixes of the glue's functions that a model calls."""
CORE_JOB_SUFFIX: Final = "_job"
"""Name suffix of the glue's functions that another core calls."""
CORE_START_FUNCTION: Final = "fwr_port_core_start"
"""The runtime function that starts a job on another core, or executes it."""


@dataclass(slots=True)
class _Function:
    name: str
    frame_bytes: int = 0
    targets: set[int] = field(default_factory=set)
    indirect: bool = False


class CallGraph:
    """The functions of an image by address, with their stack frames and calls."""

    def __init__(
        self, disassembly: str, frames: Mapping[str, int], glue: Iterable[str],
        model: Iterable[str] = (),
    ) -> None:  # fmt: skip
        """Build the graph; `glue` and `model` name the functions of the glue and the models."""
        self._frames = dict(frames)
        self._model = frozenset(model)
        self._functions = _parse(disassembly)
        self._starts = sorted(self._functions)
        names = set(glue)
        called = {a: f.name for a, f in self._functions.items() if f.name in names}
        self._by_model = [
            a for a, name in called.items() if name.startswith(MODEL_CALLBACK_PREFIXES)
        ]
        self._jobs = [a for a, name in called.items() if name.endswith(CORE_JOB_SUFFIX)]
        self._glue = [a for a in called if a not in (*self._by_model, *self._jobs)]
        self._known: dict[int, tuple[int, tuple[int, ...]]] = {}

    def worst(self, root: str) -> StackUsage:
        """Return the deepest path from `root`, which must be in the image."""
        starts = [a for a, f in self._functions.items() if f.name == root]
        if not starts:
            raise ToolFailedError(f"the image has no function {root}.")
        size, path = max(self._depth(start, ()) for start in starts)
        reached = self._reached(starts)
        unknown = sorted({f.name for f in reached if self._is_unknown(f)})
        return StackUsage(root, size, tuple(self._functions[a].name for a in path), tuple(unknown))

    def has(self, name: str) -> bool:
        return any(f.name == name for f in self._functions.values())

    def _depth(self, start: int, above: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        if start in self._known:
            return self._known[start]
        function = self._functions[start]
        if start in above:
            cycle = [self._functions[a].name for a in (*above[above.index(start) :], start)]
            what = f"recursion has unbounded stack use: {' calls '.join(cycle)}."
            raise ToolFailedError(what)
        deepest: tuple[int, tuple[int, ...]] = (0, ())
        for callee in self._callees(start, function):
            deepest = max(deepest, self._depth(callee, (*above, start)))
        frame = max(function.frame_bytes, self._frames.get(function.name, 0))
        self._known[start] = (frame + deepest[0], (start, *deepest[1]))
        return self._known[start]

    def _callees(self, start: int, function: _Function) -> list[int]:
        if "@plt" in function.name:
            return []
        inside = {a for a in function.targets if a in self._functions and a != start}
        if function.indirect and function.name in self._frames:
            others = self._jobs if function.name == CORE_START_FUNCTION else self._glue
            inside.update(self._by_model if function.name in self._model else others)
        return sorted(inside)

    def _reached(self, starts: list[int]) -> list[_Function]:
        seen: set[int] = set()
        todo = list(starts)
        while todo:
            start = todo.pop()
            if start not in seen:
                seen.add(start)
                todo.extend(self._callees(start, self._functions[start]))
        return [self._functions[a] for a in sorted(seen)]

    def _is_unknown(self, function: _Function) -> bool:
        ours = function.name in self._frames
        return "@plt" in function.name or (function.indirect and not ours)


def read_frames(directory: Path) -> dict[str, int]:
    """Return the frame bytes from `.su` files; of functions with one name, the largest counts."""
    frames: dict[str, int] = {}
    for file in sorted(directory.rglob("*.su")):
        for line in file.read_text(encoding="utf-8").splitlines():
            place, size, kind = line.split("\t")
            name = without_abi_hash(place.rsplit(":", 1)[-1])
            if "dynamic" in kind and "bounded" not in kind:
                what = f"{name} uses a variable amount of stack."
                raise ToolFailedError(what, where=place)
            frames[name] = max(frames.get(name, 0), int(size))
    return frames


def _parse(disassembly: str) -> dict[int, _Function]:
    functions: dict[int, _Function] = {}
    current = _Function("")
    for line in disassembly.splitlines():
        header = _HEADER.match(line)
        if header:
            name = without_abi_hash(header[2])
            current = functions.setdefault(int(header[1], 16), _Function(name))
            continue
        instruction = _LINE.match(line)
        if instruction:
            _take(current, instruction[2], instruction[3] or "")
    return functions


def _take(function: _Function, mnemonic: str, operands: str) -> None:
    function.frame_bytes += _pushed(mnemonic, operands)
    if _BRANCH.fullmatch(mnemonic):
        target = _TARGET.search(operands)
        if target:
            function.targets.add(int(target[1], 16))
    elif mnemonic == ".word" and function.name.endswith("_veneer"):  # of the linker, to far code
        function.targets.add(int(operands, 16) & ~1)
    if _is_indirect(mnemonic, operands):
        function.indirect = True


def _is_indirect(mnemonic: str, operands: str) -> bool:
    """Return whether an instruction calls through a register; on Arm, jumps are included."""
    match mnemonic:
        case "blx":
            return "<" not in operands
        case "bx":
            return not operands.startswith("lr")
        case "call" | "callq":
            return operands.startswith("*")
    return mnemonic == "jalr"


def _pushed(mnemonic: str, operands: str) -> int:
    base = mnemonic.split(".")[0]
    if base in ("push", "vpush") or (base in ("stmdb", "vstmdb") and operands.startswith("sp!")):
        return _list_bytes(operands) if "{" in operands else 8
    for pattern, radix in _LOWERING:
        match = pattern.match(f"{mnemonic} {operands}")
        if match:
            return int(match[1], radix)
    return 0


def _list_bytes(operands: str) -> int:
    """Return the size of a register list such as `{r4, r5, lr}` or `{d8-d15}`."""
    registers = _ARM_LIST.search(operands)
    total = 0
    for item in registers[1].split(",") if registers else ():
        register = item.strip()
        span = _ARM_RANGE.fullmatch(register)
        count = int(span[3]) - int(span[2]) + 1 if span else 1
        total += count * (8 if register.startswith("d") else 4)
    return total
