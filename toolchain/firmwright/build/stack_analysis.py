"""Worst-case stack analysis of a linked image, from the calls in its disassembly.

A function's frame is the larger of the `.su` file's value and that of its instructions.
Indirect calls in the model may reach the glue's reader and device functions; those in
the runtime (through `struct fwr_model`) its other functions, except jobs of other
cores, which the core driver calls. The targets of all other indirect calls are unknown:
those of a user's main program and of the functions that it calls, of backends, and of
the C library.

Recursion, unknown targets and frames of variable size have no bound; the depth is then
that of the paths without them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from firmwright.artifacts import StackUsage, UnboundedReason, UnboundedStack
from firmwright.base.errors import ToolFailedError
from firmwright.build.call_sites import FunctionCode, read_functions, source_name

MODEL_CALLBACK_PREFIXES: Final = ("read_constants", "start_", "wait_for_")
"""Name prefixes of the glue's functions that a model calls."""
CORE_JOB_SUFFIX: Final = "_job"
"""Name suffix of the glue's functions that another core calls."""
CORE_START_FUNCTION: Final = "fwr_port_core_start"
"""The runtime function that starts a job on another core, or executes it."""


@dataclass(frozen=True, slots=True)
class KnownFunctions:
    """The functions with `.su` files, by the part of the project that defines them.

    With `is_custom`, the glue is a user's main program, whose calls have unknown
    targets.
    """

    frames: Mapping[str, int]
    glue: frozenset[str] = frozenset()
    model: frozenset[str] = frozenset()
    backend: frozenset[str] = frozenset()
    variable: frozenset[str] = frozenset()
    is_custom: bool = False

    def knows_targets(self, name: str) -> bool:
        """Return whether a function's indirect calls reach only the glue."""
        return name in self.frames and name not in self.backend and not self.is_custom


@dataclass(frozen=True, slots=True, order=True)
class _DeepestPath:
    """The bytes of a path's frames, and its functions by address.

    Paths of equal depth are ordered by the addresses.
    """

    size_bytes: int
    addresses: tuple[int, ...]


class CallGraph:
    """The functions of an image by address, with their stack frames and calls."""

    def __init__(self, disassembly: str, known: KnownFunctions) -> None:
        self._known = known
        self._functions = read_functions(disassembly)
        self._by_model: list[int] = []
        self._jobs: list[int] = []
        self._glue: list[int] = []
        for address, function in self._functions.items():
            if function.name not in known.glue:
                continue
            is_by_model = function.name.startswith(MODEL_CALLBACK_PREFIXES)
            is_job = function.name.endswith(CORE_JOB_SUFFIX)
            if is_by_model:
                self._by_model.append(address)
            if is_job:
                self._jobs.append(address)
            if not is_by_model and not is_job:
                self._glue.append(address)
        self._depths: dict[int, _DeepestPath] = {}
        self._cycles: dict[int, tuple[str, ...]] = {}

    def worst(self, root: str) -> StackUsage:
        """Return the deepest path from `root`, which must be in the image."""
        starts = [address for address, f in self._functions.items() if f.name == root]
        if not starts:
            raise ToolFailedError(f"the image has no function {root}.")
        deepest = max(self._depth(start, ()) for start in starts)
        reached = self._reached(starts)
        unknown = {f.name for f in reached.values() if f.is_dynamically_linked}
        return StackUsage(
            root,
            deepest.size_bytes,
            tuple(self._functions[address].name for address in deepest.addresses),
            tuple(sorted(unknown)),
            self._unbounded(reached),
        )

    def has(self, name: str) -> bool:
        return any(f.name == name for f in self._functions.values())

    def _depth(self, start: int, above: tuple[int, ...]) -> _DeepestPath:
        """Return the deepest path from a function; `above` is the way to it.

        This is a depth-first search that remembers the depth of each function. A call
        of a function on the way closes a cycle, of which the frames count once.
        """
        if start in self._depths:
            return self._depths[start]
        function = self._functions[start]
        if start in above:
            self._note_cycle((*above[above.index(start) :], start))
            return _DeepestPath(0, ())
        deepest = _DeepestPath(0, ())
        for callee in self._callees(start, function):
            deepest = max(deepest, self._depth(callee, (*above, start)))
        frame = max(function.frame_bytes, self._known.frames.get(function.name, 0))
        path = _DeepestPath(frame + deepest.size_bytes, (start, *deepest.addresses))
        self._depths[start] = path
        return path

    def _note_cycle(self, cycle: tuple[int, ...]) -> None:
        """Record a cycle unless all of its edges are jumps, which leave no frame."""
        for caller, callee in pairwise(cycle):
            if not self._functions[caller].only_jumps_to(callee):
                names = tuple(self._functions[address].name for address in cycle)
                self._cycles.setdefault(cycle[0], names)
                return

    def _callees(self, start: int, function: FunctionCode) -> list[int]:
        """Return the addresses that the function at `start` calls or jumps to."""
        if function.is_dynamically_linked:
            return []
        callees = (function.calls | function.jumps) & self._functions.keys()
        if function.only_jumps_to(start):
            # The jump is that of a loop.
            callees.discard(start)
        if function.calls_pointer and self._known.knows_targets(function.name):
            callees.update(self._targets_of_pointers(function.name))
        return sorted(callees)

    def _targets_of_pointers(self, caller: str) -> list[int]:
        """Return the functions of the glue that `caller` may call by pointer."""
        if caller in self._known.model:
            return self._by_model
        if caller == CORE_START_FUNCTION:
            return self._jobs
        return self._glue

    def _reached(self, starts: list[int]) -> dict[int, FunctionCode]:
        """Return the functions to which a path leads from `starts`."""
        seen: set[int] = set()
        todo = list(starts)
        while todo:
            start = todo.pop()
            if start not in seen:
                seen.add(start)
                todo.extend(self._callees(start, self._functions[start]))
        return {a: self._functions[a] for a in sorted(seen)}

    def _unbounded(
        self, reached: Mapping[int, FunctionCode]
    ) -> tuple[UnboundedStack, ...]:
        """Return why the depth has no bound, the definite causes first."""
        causes: list[UnboundedStack] = []
        variable: set[str] = set()
        pointers: set[str] = set()
        for address, function in reached.items():
            if address in self._cycles:
                cycle = self._cycles[address]
                causes.append(self._cause(UnboundedReason.RECURSION, *cycle))
            if self._is_variable(function):
                variable.add(function.name)
            if self._has_unknown_targets(function):
                pointers.add(function.name)
        for name in sorted(variable):
            causes.append(self._cause(UnboundedReason.VARIABLE_FRAME, name))
        for name in sorted(pointers):
            causes.append(self._cause(UnboundedReason.FUNCTION_POINTER, name))
        return tuple(sorted(causes, key=lambda cause: not cause.is_definite))

    def _cause(self, reason: UnboundedReason, *names: str) -> UnboundedStack:
        """Return the cause, definite for own functions except for calls by pointer."""
        is_own = any(name in self._known.frames for name in names)
        is_definite = is_own and reason is not UnboundedReason.FUNCTION_POINTER
        return UnboundedStack(reason, names, is_definite)

    def _is_variable(self, function: FunctionCode) -> bool:
        """Return whether a frame has no constant size.

        Without a `.su` file, instructions tell.
        """
        has_frame = function.name in self._known.frames
        is_lowered = function.lowers_by_register and not has_frame
        return function.name in self._known.variable or is_lowered

    def _has_unknown_targets(self, function: FunctionCode) -> bool:
        """Return whether a function calls through a pointer, maybe as its last act.

        The user's file is compiled without jump tables, so a jump to a register is a
        call there.
        """
        if function.is_dynamically_linked or self._known.knows_targets(function.name):
            return False
        is_users = self._known.is_custom and function.name in self._known.glue
        return function.calls_pointer or (is_users and function.jumps_to_register)


def read_frames(directory: Path) -> tuple[dict[str, int], frozenset[str]]:
    """Return the frame bytes in `.su` files, and functions with frames that vary.

    Of functions with one name, the largest counts.
    """
    frames: dict[str, int] = {}
    variable = set[str]()
    for file in sorted(directory.rglob("*.su")):
        for line in file.read_text(encoding="utf-8").splitlines():
            place, size, kind = line.split("\t")
            name = source_name(place.rsplit(":", 1)[-1])
            if "dynamic" in kind and "bounded" not in kind:
                variable.add(name)
            frames[name] = max(frames.get(name, 0), int(size))
    return frames, frozenset(variable)


def read_known_functions(directory: Path, *, is_custom: bool) -> KnownFunctions:
    """Return the functions of an image's folder, with `.su` files as in a project."""
    frames, variable = read_frames(directory)
    return KnownFunctions(
        frames=frames,
        glue=_functions_in(directory / "firmware"),
        model=_functions_in(directory / "model"),
        backend=_functions_in(directory / "backend"),
        variable=variable,
        is_custom=is_custom,
    )


def _functions_in(directory: Path) -> frozenset[str]:
    frames, _ = read_frames(directory)
    return frozenset(frames)
