"""The verbs and their texts, in packages with the layout of this one.

Such a package has a module with `run(args)` for each of its verbs, `help.toml` with
their groups and examples, and `options.txt` with their arguments. The first one is
`firmwright.cli`; extensions name further ones (`Extension.command_line`).
"""

import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from firmwright import cli
from firmwright.base.errors import UsageError
from firmwright.base.extensions import door_modules
from firmwright.base.text_sections import read_sections

WIDTH = 80
_EARLIER = "*"
"""Stands for the verbs that a group already has, which otherwise come first."""


@dataclass(frozen=True)
class CommandPackage:
    """A package of verbs and its folder, whose texts are read at their first use."""

    name: str
    folder: Path

    @cached_property
    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """The names of its verbs by the title of their group."""
        groups: dict[str, tuple[str, ...]] = {}
        for title, names in self._help.get("groups", {}).items():
            groups[title] = tuple(names)
        return groups

    @property
    def verbs(self) -> tuple[str, ...]:
        verbs: list[str] = []
        for names in self.groups.values():
            verbs += [name for name in names if name != _EARLIER]
        return tuple(verbs)

    @cached_property
    def examples(self) -> Mapping[str, str]:
        """The examples by verb."""
        examples: dict[str, str] = {}
        for verb, text in self._help.get("examples", {}).items():
            examples[verb] = str(text).strip()
        return examples

    @cached_property
    def arguments(self) -> Mapping[str, str]:
        """The sections of options.txt, by verb or by the name that verbs include."""
        return read_sections(str(self.folder / "options"), ".txt")

    @cached_property
    def _help(self) -> Mapping[str, Mapping[str, Any]]:
        file = self.folder / "help.toml"
        return tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


CORE = CommandPackage(cli.__name__, Path(__file__).parent)


def extension_packages() -> list[CommandPackage]:
    """Return the packages of the extensions that have verbs or options."""
    packages: list[CommandPackage] = []
    for package in door_modules(lambda extension: extension.command_line):
        folder = Path(str(package.__file__)).parent
        packages.append(_command_package(package.__name__, folder))
    return packages


_command_package = cache(CommandPackage)
"""Each package is one object, which keeps the texts that it has read."""


def command_packages() -> Mapping[str, CommandPackage]:
    """Return the package of each verb; UsageError if two packages have a verb."""
    packages: dict[str, CommandPackage] = {}
    for package in (CORE, *extension_packages()):
        for name in package.verbs:
            if name in packages:
                earlier = packages[name].name
                what = f"two packages have a verb {name}: {earlier} and {package.name}."
                hint = "rename the verb, or uninstall one of the packages."
                raise UsageError(what, hint=hint)
            packages[name] = package
    return packages


def grouped_verbs() -> Mapping[str, tuple[str, ...]]:
    """Return the names of all verbs by their group's title, in the help's order."""
    groups: dict[str, tuple[str, ...]] = {}
    for package in (CORE, *extension_packages()):
        for title, names in package.groups.items():
            earlier = groups.get(title, ())
            at = names.index(_EARLIER) if _EARLIER in names else -1
            groups[title] = (*names[: max(at, 0)], *earlier, *names[at + 1 :])
    return groups


def format_examples(verb: str) -> str:
    packages = dict.fromkeys((command_packages()[verb], *extension_packages()))
    texts: list[str] = []
    for package in packages:
        if verb in package.examples:
            texts.append(package.examples[verb])
    text = "\n".join(texts)
    return f"examples:\n{textwrap.indent(text, '  ')}" if text else ""


def format_verbs(descriptions: Mapping[str, str]) -> str:
    """Format the verbs of all groups with descriptions, for `firmwright --help`."""
    groups: list[str] = []
    for title, names in grouped_verbs().items():
        groups.append("\n".join(_lines(title, names, descriptions)))
    return "\n\n".join(groups)


def _lines(
    title: str, names: tuple[str, ...], descriptions: Mapping[str, str]
) -> Iterator[str]:
    yield f"{title}:"
    for name in names:
        if name in descriptions:
            head = f"  {name:<12}"
            yield textwrap.fill(
                descriptions[name],
                WIDTH,
                initial_indent=head,
                subsequent_indent=" " * len(head),
            )
