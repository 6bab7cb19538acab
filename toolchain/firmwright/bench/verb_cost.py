"""CPU time of whole commands, each in a new process, including the start of Python."""

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from firmwright.base.child_process import (
    IMPORT_PATH_VARIABLE,
    Word,
    python_command,
    run_program,
)
from firmwright.base.errors import UsageError
from firmwright.base.import_path import trusted_import_path

RUNS = 7
"""The runs of each command; the least time is the least disturbed one."""
_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class VerbCost:
    """The least user and system time of a command, or the `problem` that ended it.

    `other_seconds` is the time of the same command in another version, if there is one.
    """

    verb: str
    model: str = ""
    board: str = ""
    cpu_seconds: float = 0.0
    other_seconds: float | None = None
    problem: str = ""

    @property
    def ratio(self) -> float | None:
        return self.cpu_seconds / self.other_seconds if self.other_seconds else None


@dataclass(frozen=True, slots=True)
class _Command:
    verb: str
    model: Path | None = None
    board: str = ""

    def words(self, folder: Path) -> Iterator[Word]:
        yield self.verb
        if self.model is not None:
            yield self.model
        if self.board:
            yield from ("--board", self.board, "-o", folder / "out")


def measure_verb_costs(
    models: Sequence[Path],
    boards: Sequence[str],
    other_version: Path | None = None,
    *,
    runs: int = RUNS,
) -> list[VerbCost]:
    """Measure `ops`, `inspect` of each model, and `compile` of each for each board.

    `other_version` is the folder with the package `firmwright` of another version. The
    versions take turns, so that the load of the computer is the same for both.

    Raises:
        UsageError: `other_version` has no such package, or the system is Windows, which
            does not report the CPU time of processes that have ended.
    """
    if sys.platform == "win32":
        raise UsageError(
            "Windows does not report the CPU time of a process that has ended."
        )
    if other_version is not None:
        main = other_version / "firmwright" / "__main__.py"
        if not main.is_file():
            what = "the folder has no package firmwright."
            hint = "the folder `toolchain` of a checkout of another version."
            raise UsageError(what, where=str(other_version), hint=hint)
    commands = [_Command("ops")]
    commands += [_Command("inspect", model) for model in models]
    for model, board in product(models, boards):
        commands.append(_Command("compile", model, board))
    return [_measure(command, other_version, runs) for command in commands]


def _measure(command: _Command, other_version: Path | None, runs: int) -> VerbCost:
    own: list[float] = []
    others: list[float] = []
    model = command.model.name if command.model else ""
    for _ in range(runs):
        seconds, problem = _run(command, None)
        if problem:
            return VerbCost(command.verb, model, command.board, problem=problem)
        own.append(seconds)
        if other_version is not None:
            seconds, problem = _run(command, other_version)
            if problem:
                problem = f"{other_version}: {problem}"
                return VerbCost(
                    command.verb, model, command.board, min(own), problem=problem
                )
            others.append(seconds)
    other_seconds = round(min(others), 3) if others else None
    return VerbCost(
        command.verb, model, command.board, round(min(own), 3), other_seconds
    )


def _run(command: _Command, version: Path | None) -> tuple[float, str]:
    """Return the CPU seconds of one run and, if it failed, the last printed line."""
    environment: dict[str, str] = {}
    if version is not None:
        folders = [str(version.absolute()), *trusted_import_path()]
        environment[IMPORT_PATH_VARIABLE] = os.pathsep.join(folders)
        environment["PYTHONPATH"] = str(version.absolute())
    with tempfile.TemporaryDirectory() as folder:
        line = python_command("firmwright", *command.words(Path(folder)))
        before = _children_seconds()
        status, output = run_program(
            line,
            f"firmwright {command.verb}",
            timeout_s=_TIMEOUT_S,
            environment=environment,
        )
        seconds = _children_seconds() - before
    last_line = output.strip().rpartition("\n")[2]
    return seconds, f"exit status {status}: {last_line}" if status else ""


def _children_seconds() -> float:
    """Return the user and system time of all processes that this one has waited for."""
    times = os.times()
    return times.children_user + times.children_system
