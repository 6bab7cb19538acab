"""The interface of a verb: its module, its parser and its outcome.

A verb is a module of this package with NAME, HELP, `add_arguments(parser)` and `run(args)`.
"""

import argparse
import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

from firmwright.base.errors import FirmwrightError, UsageError


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a verb: `data` for `--json`, and for terminals `text` without a final newline.

    `error` is a failure that is itself a result, such as differing outputs. Other failures are
    raised.
    """

    data: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    error: FirmwrightError | None = None


class Verb(Protocol):
    """The module of a verb."""

    NAME: str
    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the verb's arguments."""

    def run(self, args: argparse.Namespace) -> Outcome:
        """Run the verb."""


class CliParser(argparse.ArgumentParser):
    """An argument parser that raises UsageError."""

    def error(self, message: str) -> NoReturn:
        verb = self.prog.partition(" ")[2]
        raise UsageError(f"{message}.", where=verb, hint=f"run {self.prog} --help.")


ParserOrGroup = argparse.ArgumentParser | argparse._ArgumentGroup
REPEATABLE: Mapping[str, Any] = {"action": "append", "default": []}


def add_options(parser: ParserOrGroup, text: str, **settings: Mapping[str, Any]) -> None:
    """Declare the options of `text`, which has the format of --help.

    Two spaces precede each description; an option without value or choices is a flag. `settings`
    are further arguments of `add_argument` by option.
    """
    for block in re.split(r"\n(?=-)", inspect.cleandoc(text)):
        declaration, description = re.split(r"\s{2,}", block, maxsplit=1)
        words = declaration.split()
        flags = [word for word in words if word.startswith("-")]
        name = next(flag for flag in flags if flag.startswith("--"))[2:].replace("-", "_")
        more = dict(settings.get(name, {}))
        if words[-1] not in flags:
            more["metavar"] = words[-1]
        elif "choices" not in more:
            more.setdefault("action", "store_true")
        parser.add_argument(*flags, help=" ".join(description.split()), **more)


def fields_of(record: object, names: str) -> dict[str, Any]:
    """Return the attributes of `record` with these names, for JSON output."""
    return {name: getattr(record, name) for name in names.split()}
