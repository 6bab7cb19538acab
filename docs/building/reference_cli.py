"""The reference of commands, generated from their parsers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Final

from markdown_pieces import cell, fence, page, table

from firmwright.base import errors
from firmwright.cli.main import _parser, verbs

HEADS: Final = {"positional arguments": "", "options": ""}
"""argparse's own names of its groups, which say nothing."""


def commands_page() -> str:
    """Return every verb with its arguments and options, in alphabetical order."""
    parser = _parser(verbs())
    known = parsers_of(parser)
    summary = table(
        ("verb", "what it does"),
        (
            (f"[`{name}`](#{name})", sub.description or "")
            for name, sub in known.items()
        ),
    )
    return page(
        "Commands",
        "the parsers of `toolchain/firmwright/cli`",
        "`./fw VERB` is the same in a clone. Every verb takes `--json`, which prints "
        "one object with `schema`, `verb`, `ok` and the verb's own keys; a failure is "
        "in `error`.",
        summary,
        "## Failures",
        "0 is success. A failure is one of these; `error.code` in `--json` is its "
        "name.",
        table(("name", "exit code", "means"), _failures()),
        *(part for name, sub in known.items() for part in _verb(name, sub)),
    )


def _failures() -> Iterator[tuple[str, str, str]]:
    for kind in vars(errors).values():
        base = errors.FirmwrightError
        if isinstance(kind, type) and issubclass(kind, base) and kind is not base:
            said = (kind.__doc__ or "").partition("\n\n")[0]
            yield f"`{kind.code}`", str(kind.exit_code), cell(said)


def parsers_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the verbs' parsers by name."""
    (found,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return dict(found.choices)


def _verb(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f"## {name}"
    said = parser.description or ""
    yield said[:1].upper() + said[1:]
    positional = [a for a in parser._actions if not a.option_strings]
    words = " ".join(_positional(action) for action in positional)
    yield fence("text", f"firmwright {name} [options] {words}".rstrip())
    if positional:
        rows = ((f"`{_positional(a)}`", _meaning(a)) for a in positional)
        yield table(("argument", "means"), rows)
    for group in parser._action_groups:
        rows = [
            (_spelled(a), _meaning(a))
            for a in group._group_actions
            if a.option_strings and not isinstance(a, argparse._HelpAction)
        ]
        if rows:
            title = HEADS.get(group.title or "", group.title or "")
            yield table((f"{title} option".strip(), "means"), rows)


def _positional(action: argparse.Action) -> str:
    if action.choices is not None:
        word = "{" + ",".join(map(str, action.choices)) + "}"
    else:
        word = str(action.metavar or action.dest)
    match action.nargs:
        case "?":
            return f"[{word}]"
        case "*":
            return f"[{word} ...]"
        case "+" | "A...":
            return f"{word} ..."
        case _:
            return word


def _spelled(action: argparse.Action) -> str:
    """Return all spellings of an option with its value."""
    value = ""
    if action.nargs != 0:
        choices = "{" + ",".join(map(str, action.choices or ())) + "}"
        value = " " + str(
            action.metavar or (choices if action.choices else action.dest.upper())
        )
    return ", ".join(f"`{option}{value}`" for option in action.option_strings)


def _meaning(action: argparse.Action) -> str:
    return cell((action.help or "").replace("%%", "%").replace("<", "&lt;"))
