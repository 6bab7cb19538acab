"""The arguments of the verbs, from the sections of options.txt, which describes their format."""

import argparse
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from firmwright.base.text_sections import read_sections
from firmwright.cli import option_values

_Group = argparse.ArgumentParser | argparse._ArgumentGroup
_TYPES: Mapping[str, Callable[[str], object]] = {
    **dict.fromkeys(("COUNT", "HZ", "INDEX", "RATE"), partial(option_values.integer, minimum=0)),
    "SEED": partial(option_values.integer, minimum=0, maximum=option_values.SIZE_MAX),
    "BYTES": partial(
        option_values.integer,
        minimum=1,
        what="a number of bytes",
        base=0,
        maximum=option_values.SIZE_MAX,
    ),
    "KIND=SECTION": option_values.linker_section,
    "N": partial(option_values.integer, minimum=1),
    "NAME,NAME,...": option_values.names,
    "NAME=1,3,32,32": option_values.input_shape,
    "NAME=VALUES": option_values.input_values,
    "NAME[=BYTES][,SPEED=N...]": option_values.pool,
    "NAME[=BYTES][:HOW]": option_values.const_pool,
    "S": option_values.positive_seconds,
    "TENSOR=DEVICE[:POOL]": option_values.device_assignment,
    "WHAT": option_values.trusted,
    "TENSOR=POOL": partial(option_values.tensor_pair, form="TENSOR=POOL"),
    "TENSOR=TARGET[:PERCENT]": partial(
        option_values.tensor_pair, form="TENSOR=TARGET or TENSOR=TARGET:PERCENT"
    ),
    "board_dirs": option_values.folder,
    "cpu0,cpu1": option_values.names,
}
"""Types by placeholder or destination; other values are strings."""


_SECTIONS = read_sections(__file__, ".txt")


def describe_verb(verb: str) -> str:
    return next(_lines(verb))


def add_arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    group: _Group = parser
    _, *lines = _lines(verb)
    for line in lines:
        if line.startswith("== "):
            group = parser.add_argument_group(line[3:])
        else:
            _add_argument(group, line)


def _lines(section: str) -> Iterator[str]:
    """Yield the lines of a section and those that it includes, with continuation lines joined."""
    for line in re.sub(r"\n {4}", " ", _SECTIONS[section].strip()).splitlines():
        if line.startswith("@"):
            yield from _lines(line[1:])
        else:
            yield line


def _add_argument(group: _Group, line: str) -> None:
    """Declare an argument; defaults are added to descriptions that state none."""
    declaration, description = re.split(r"\s{2,}", line, maxsplit=1)
    rest, _, default = declaration.partition(" := ")
    rest, _, destination = rest.partition(" -> ")
    flags = [word for word in rest.split() if word.startswith("-")]
    placeholder = rest.removeprefix(" ".join(flags)).strip()
    if not flags:
        settings = _positional_settings(placeholder)
    elif placeholder:
        settings = _value_settings(placeholder, destination, "repeatable" in description)
    else:
        settings = {"action": "store_false" if destination.startswith("!") else "store_true"}
    if destination and not destination.startswith("$"):
        settings["dest"] = destination.lstrip("!")
    if default == "required":
        settings["required"] = True
    elif default:
        variable = default.removeprefix("$")
        settings["default"] = (
            default.strip('"') if variable == default else os.environ.get(variable, "")
        )
        settings |= {} if flags else {"nargs": "?"}
    if choices := re.fullmatch(r"{(.*)}", placeholder):
        settings |= {"choices": choices[1].split(","), "metavar": None}
    states_default = settings.keys() & {"action", "required", "nargs"} or "default:" in description
    shown = "" if states_default else f" (default: {settings.get('default') or 'none'})"
    group.add_argument(*flags, help=description + shown, **settings)


def _positional_settings(placeholder: str) -> dict[str, Any]:
    name = placeholder.strip("[].")
    counts = {"": None, "[]": "?", "...": "+", "[...]": "*"}
    return {"dest": name.lower(), "metavar": name, "nargs": counts[placeholder.replace(name, "")]}


def _value_settings(placeholder: str, destination: str, is_repeatable: bool) -> dict[str, Any]:
    value_type = _TYPES.get(destination, _TYPES.get(placeholder))
    settings: dict[str, Any] = {"metavar": placeholder, "type": value_type}
    if destination.startswith("$"):
        stored = (destination[1:], is_repeatable)
        return {**settings, "action": _StoreInEnvironment, "const": stored}
    return settings | ({"action": "append", "default": []} if is_repeatable else {})


class _StoreInEnvironment(argparse.Action):
    """An action that stores values in an environment variable, separated as in PATH."""

    def __call__(self, _parser: Any, _namespace: Any, values: object, *_: Any) -> None:
        name, is_repeatable = self.const
        before = f"{os.environ.get(name, '')}{os.pathsep}" if is_repeatable else ""
        os.environ[name] = f"{before}{values}"
