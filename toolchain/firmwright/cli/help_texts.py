"""The texts of help.toml: the groups of verbs, and their examples."""

import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

WIDTH = 80


@cache
def _texts() -> Mapping[str, Any]:
    return tomllib.loads(Path(__file__).with_name("help.toml").read_text(encoding="utf-8"))


def grouped_verbs() -> Mapping[str, tuple[str, ...]]:
    return {title: tuple(names) for title, names in _texts()["groups"].items()}


def format_examples(verb: str) -> str:
    text = _texts()["examples"].get(verb, "").strip()
    return f"examples:\n{textwrap.indent(text, '  ')}" if text else ""


def format_verbs(descriptions: Mapping[str, str]) -> str:
    """Format the descriptions of verbs, by group."""
    return "\n\n".join("\n".join(_lines(*item, descriptions)) for item in grouped_verbs().items())


def _lines(title: str, names: tuple[str, ...], descriptions: Mapping[str, str]) -> Iterator[str]:
    yield f"{title}:"
    for name in names:
        if name in descriptions:
            head = f"  {name:<12}"
            yield textwrap.fill(
                descriptions[name], WIDTH, initial_indent=head, subsequent_indent=" " * len(head)
            )
