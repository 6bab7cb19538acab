"""Runs verbs for an agent: in a process of their own, with paths below one folder.

A process can be ended after a time, and a defect of one call does not end the server.
Code in files is never trusted, whatever the user's environment says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from firmwright.base.child_process import python_command, run_program
from firmwright.base.errors import FirmwrightError, InternalError, UsageError
from firmwright.base.json_input import Json, JsonObject
from firmwright.base.trust import TRUST_VARIABLE
from firmwright.boards import load_board
from firmwright.boards.schema import RunKind

EMULATED: Final[tuple[RunKind, ...]] = ("host", "qemu")
"""Boards that need no hardware."""


class ToolCallError(Exception):
    """A failed call, with a text for the agent: what was found, where, what to do."""


@dataclass(frozen=True, slots=True)
class CommandRunner:
    """Runs verbs on files below `root`, each for at most `timeout_s` seconds."""

    root: Path
    timeout_s: float

    def run(self, verb: str, *words: str) -> JsonObject:
        """Return the object that `firmwright VERB WORDS --json` prints.

        Raise ToolCallError with the verb's error, or if it takes too long.
        """
        command = python_command("firmwright", verb, *words, "--json")
        try:
            _, output = run_program(
                command,
                f"firmwright {verb}",
                timeout_s=self.timeout_s,
                environment={TRUST_VARIABLE: ""},
            )
        except FirmwrightError as error:
            raise ToolCallError(str(error)) from error
        result = find_result(output)
        failure = result.get("error")
        if isinstance(failure, Mapping):
            raise ToolCallError(format_failure(failure))
        return result

    def model(self, path: str) -> str:
        """Return the absolute path of a file below `root`; ToolCallError for others.

        Symbolic links are resolved before the comparison.
        """
        try:
            file = (self.root / path).resolve()
            is_file = file.is_file()
        except (OSError, ValueError):  # a loop of links, or a character 0
            file, is_file = self.root, False
        if not file.is_relative_to(self.root):
            raise ToolCallError(
                f"usage: {path}: the file is outside of the server's root folder. Try: "
                "a path below the folder that the user started it with."
            )
        if not is_file:
            raise ToolCallError(
                f"usage: {path}: there is no such file. Try: list_models."
            )
        return str(file)

    def emulated_board(self, name: str) -> str:
        """Return the name of a board that this computer is or emulates."""
        try:
            kind = load_board(name).run.kind
        except FirmwrightError as error:
            raise ToolCallError(str(error)) from error
        if kind not in EMULATED:
            raise ToolCallError(
                f"usage: {name}: the board needs hardware, which this server does not "
                "touch. Try: fit, or an emulated board of list_boards."
            )
        return name


def find_result(output: str) -> JsonObject:
    """Return the object in a verb's output, which messages may precede."""
    decoder = json.JSONDecoder()
    at = output.find("{")
    while at >= 0:
        try:
            value: Json = decoder.raw_decode(output, at)[0]
        except ValueError:
            value = None
        if isinstance(value, Mapping) and "verb" in value:
            return value
        at = output.find("{", at + 1)
    raise InternalError(f"the verb printed no result: {output[-500:]}")


def format_failure(failure: JsonObject) -> str:
    """Return the text of an error: its code, place, finding and remedy."""
    where, hint = failure.get("where"), failure.get("hint")
    place = f"{where}: " if where else ""
    remedy = f" Try: {hint}" if hint else ""
    return f"{failure.get('code')}: {place}{failure.get('what')}{remedy}"


def open_root(path: str, timeout_s: float) -> CommandRunner:
    root = Path(path).resolve()
    if not root.is_dir():
        what = "there is no such folder."
        raise UsageError(what, where=path, hint="give the folder with your models.")
    return CommandRunner(root, timeout_s)
