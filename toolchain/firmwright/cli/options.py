"""The verbs' arguments, from the sections of options.txt, which describes their format.

Extensions have such a file, too: for their verbs, whose sections may include those of
this package, and for the options that they add to others.
"""

import argparse
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeAlias

from firmwright.cli import option_values
from firmwright.cli.verb_texts import CORE, command_packages, extension_packages

_Group = argparse.ArgumentParser | argparse._ArgumentGroup
_TYPES: Mapping[str, Callable[[str], object]] = {
    **dict.fromkeys(
        ("COUNT", "HZ", "INDEX", "RATE"), partial(option_values.integer, minimum=0)
    ),
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
    "NAME[=BYTES[@ADDRESS]][:HOW]": option_values.const_pool,
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


_INCLUDE = "@"
_EXTENSIONS = "@extensions"
"""The place of the lines that extensions add to a section."""
_GROUP = "== "
_CHOICES = "choices"
"""The section of an extension's options.txt with choices for options of others."""
_MORE = "..."
"""The place of such choices."""
_MORE_DESCRIBED = re.compile(r"\[([^][]*)\.\.\.\]")
"""The place of their descriptions, with the text before each of them."""


def describe_verb(verb: str) -> str:
    description, *_ = _lines(verb, _sections_of(verb))
    return str(description)


def add_arguments(parser: argparse.ArgumentParser, verb: str) -> None:
    """Add the arguments of a verb, or of a section that begins with a description."""
    _, *lines = _lines(verb, _sections_of(verb))
    _add_lines(parser, parser, lines)


def _add_lines(
    parser: argparse.ArgumentParser, group: _Group, lines: "Iterable[_Line]"
) -> None:
    for line in lines:
        if not isinstance(line, str):
            _add_lines(parser, group, line)
        elif line.startswith(_GROUP):
            group = parser.add_argument_group(line.removeprefix(_GROUP))
        else:
            _add_argument(group, line)


_Line: TypeAlias = "str | list[_Line]"
"""A line of a section, or the lines of an extension, whose groups end with them."""


def _sections_of(verb: str) -> Mapping[str, str]:
    """Return the section of a verb and those that it may include, by name."""
    package = command_packages().get(verb, CORE)
    return {**CORE.arguments, **package.arguments}


def _lines(section: str, sections: Mapping[str, str]) -> Iterator[_Line]:
    """Yield the lines of a section and of included ones, continuation lines joined."""
    for line in re.sub(r"\n {4}", " ", sections[section].strip()).splitlines():
        if line == _EXTENSIONS:
            for package in extension_packages():
                if section in package.arguments:
                    yield list(_lines(section, {**CORE.arguments, **package.arguments}))
        elif line.startswith(_INCLUDE):
            yield from _lines(line.removeprefix(_INCLUDE), sections)
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
        is_repeatable = "repeatable" in description
        settings = _value_settings(placeholder, destination, is_repeatable)
    else:
        is_negative = destination.startswith("!")
        settings = {"action": "store_false" if is_negative else "store_true"}
    if destination and not destination.startswith("$"):
        settings["dest"] = destination.lstrip("!")
    if default == "required":
        settings["required"] = True
    elif default:
        variable = default.removeprefix("$")
        value = default.strip('"')
        if variable != default:
            value = os.environ.get(variable, "")
        settings["default"] = value
        if not flags:
            settings["nargs"] = "?"
    if choices := re.fullmatch(r"{(.*)}", placeholder):
        names = choices[1].split(",")
        if _MORE in names:
            at = names.index(_MORE)
            names[at : at + 1] = _added_choices(flags[0])
        settings |= {"choices": names, "metavar": None}
    if more := _MORE_DESCRIBED.search(description):
        added = _added_choices(flags[0] if flags else placeholder)
        texts = dict.fromkeys(filter(None, added.values()))
        inserted = "".join(more[1] + text for text in texts)
        description = description.replace(more[0], inserted)
    is_plain = settings.keys().isdisjoint({"action", "required", "nargs"})
    if is_plain and "default:" not in description:
        description += f" (default: {settings.get('default') or 'none'})"
    group.add_argument(*flags, help=description, **settings)


def _added_choices(flag: str) -> dict[str, str]:
    """Return the choices that extensions add to an option, each with a description."""
    added: dict[str, str] = {}
    for package in extension_packages():
        if _CHOICES not in package.arguments:
            continue
        for line in _lines(_CHOICES, package.arguments):
            declaration, _, description = str(line).partition("  ")
            option, names = declaration.split()
            if option == flag:
                added |= dict.fromkeys(names.split(","), description.strip())
    return added


def _positional_settings(placeholder: str) -> dict[str, Any]:
    name = placeholder.strip("[].")
    counts = {"": None, "[]": "?", "...": "+", "[...]": "*"}
    return {
        "dest": name.lower(),
        "metavar": name,
        "nargs": counts[placeholder.replace(name, "")],
    }


def _value_settings(
    placeholder: str, destination: str, is_repeatable: bool
) -> dict[str, Any]:
    value_type = _TYPES.get(destination, _TYPES.get(placeholder))
    settings: dict[str, Any] = {"metavar": placeholder, "type": value_type}
    if destination.startswith("$"):
        stored = (destination[1:], is_repeatable)
        return {**settings, "action": _StoreInEnvironment, "const": stored}
    return settings | ({"action": "append", "default": []} if is_repeatable else {})


class _StoreInEnvironment(argparse.Action):
    """An action that stores values in an environment variable, separated as in PATH."""

    def __call__(
        self, _parser: object, _namespace: object, values: object, *_: object
    ) -> None:
        name, is_repeatable = self.const
        before = f"{os.environ.get(name, '')}{os.pathsep}" if is_repeatable else ""
        os.environ[name] = f"{before}{values}"
