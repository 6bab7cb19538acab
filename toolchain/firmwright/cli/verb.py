"""The parser of the verbs' arguments, and the outcome of a verb.

A verb is a module with `run(args)`, with its arguments in options.txt.
"""

import argparse
import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from firmwright.base.errors import FirmwrightError, UsageError

_OPTIONS_OF_OTHERS: Final = {
    ("build", "--main"): (
        "compile MODEL --main FILE.c -o DIR, then build DIR; --main is of compile."
    )
}
"""Hints for options of one verb that are looked for in another."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A verb's result: `data` for `--json`, `text` without final newline, any `error`.

    `warnings` are printed to stderr, and a list in JSON.
    """

    data: Mapping[str, object] = field(default_factory=dict)
    text: str = ""
    error: FirmwrightError | None = None
    warnings: tuple[str, ...] = ()


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """A formatter with a short usage line: required and positional arguments."""

    def add_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[argparse._MutuallyExclusiveGroup],
        prefix: str | None = None,
    ) -> None:
        others = argparse.Action([], "options", nargs="?", metavar="options")
        required = [a for a in actions if a.required or not a.option_strings]
        super().add_usage(usage, [others, *required], groups, prefix)


class CliParser(argparse.ArgumentParser):
    """An argument parser that raises UsageError, with suggestions for unknown words."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, formatter_class=_HelpFormatter)
        self.verbs: dict[str, CliParser] = {}

    @property
    def verb(self) -> str:
        return self.prog.partition(" ")[2]

    def error(self, message: str) -> NoReturn:
        hint = f"run {self.prog} --help."
        raise UsageError(f"{message}.", where=self.verb, hint=hint)

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> object:
        """Convert words to a value; refuse empty ones, as from an unset variable."""
        # The words of a verb are checked by the verb's parser.
        is_verb = action.nargs == argparse.PARSER
        if not is_verb and any(not word.strip() for word in arg_strings):
            name = "/".join(action.option_strings) or action.metavar or action.dest
            what = f"argument {name}: the value is empty."
            hint = ""
            if action.option_strings:
                hint = "give a value, or omit the option for its default."
            raise UsageError(what, where=self.verb, hint=hint)
        return super()._get_values(action, arg_strings)

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            names = [str(choice) for choice in action.choices]
            name = "/".join(action.option_strings) or action.dest
            what = f"argument {name}: {value!r} is not one of {', '.join(names)}."
            near = difflib.get_close_matches(str(value), names, n=1, cutoff=0.5)
            raise UsageError(what, where=self.verb, hint=f"{near[0]}." if near else "")

    def parse_known_args(  # type: ignore[override]  # the overloads of typeshed
        self,
        args: Sequence[str] | None = None,
        namespace: argparse.Namespace | None = None,
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse all of `args`; raise UsageError for the first unknown one."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            word = unknown[0].partition("=")[0]
            is_option = word[0] == "-"
            similar: list[str] = []
            if is_option:
                similar = difflib.get_close_matches(word, self._long_options(), n=1)
            what = "unknown option" if is_option else "unexpected argument"
            hint = f"{similar[0]}." if similar else f"run {self.prog} --help."
            hint = _OPTIONS_OF_OTHERS.get((self.verb, word), hint)
            raise UsageError(f"{what} {word}.", where=self.verb, hint=hint)
        return parsed, unknown

    def _long_options(self) -> list[str]:
        names: list[str] = []
        for action in self._actions:
            for option in action.option_strings:
                if option.startswith("--"):
                    names.append(option)
        return names


def counts_by_unit(unit: str, count: int | None) -> dict[str, int | None]:
    """Return the count under its unit's name, for JSON; other units are null."""
    units = {"instructions": "instructions", "cycles": "cycles", "nanoseconds": "ns"}
    counts: dict[str, int | None] = {}
    for name, short in units.items():
        counts[name] = count if short == unit else None
    return counts
