"""The reference of the Python interface: public names and classes of their results."""

from __future__ import annotations

import dataclasses
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

from markdown_pieces import cell, fence, page, table
from reference_cli import parsers_of

import firmwright
from firmwright.audio import Features
from firmwright.cli.main import _parser, verbs
from firmwright.flows.board.model_session import ModelSession
from firmwright.flows.verify.verification import Verification
from firmwright.ir.core import PoolInfo
from firmwright.pipeline import Options

VALUES = (Verification, ModelSession, Options, PoolInfo, Features)
"""What the public names take and give, and users meet thereby."""


def python_page() -> str:
    """Return the public names in their order, then the classes."""
    public = [
        (name, getattr(firmwright, name))
        for name in firmwright.__all__
        if name[0] != "_"
    ]
    return page(
        "Python interface",
        "the docstrings of `firmwright`",
        fence("python", inspect.getdoc(firmwright).partition("\n\n")[2]),  # type: ignore[union-attr]
        "In a notebook these objects show themselves as tables and drawings, and "
        "`%load_ext firmwright` shows progress "
        "([example](../../examples/10_notebook/README.md)).",
        "## Public names",
        *(
            part
            for name, thing in public
            for part in _entry(f"firmwright.{name}", name, thing)
        ),
        "## Values",
        *(
            part
            for kind in VALUES
            for part in _entry(kind.__name__, kind.__name__, kind)
        ),
    )


def _entry(title: str, name: str, thing: Any) -> Iterator[str]:
    yield f"### {title}"
    if inspect.isclass(thing):
        yield from _class(thing)
    else:
        yield fence("python", _signature(name, thing))
        yield _prose(thing)


def _class(kind: type) -> Iterator[str]:
    yield _prose(kind)
    if kind is Options:
        yield table(("field", "type", "default", "means"), _options())
    elif dataclasses.is_dataclass(kind):
        yield table(("field", "type", "default"), _fields(kind))
    for name, member in vars(kind).items():
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            yield (
                f"**`{name}`** (property): "
                f"{_prose(member) or _first_line_of_source(member)}"
            )
        elif inspect.isfunction(member):
            yield fence("python", _signature(name, member))
            yield _prose(member)


def _first_line_of_source(member: property) -> str:
    return f"`{inspect.signature(member.fget).return_annotation}`"  # type: ignore[arg-type]


def _fields(kind: Any) -> Iterator[tuple[str, str, str]]:
    for item in dataclasses.fields(kind):
        yield f"`{item.name}`", f"`{item.type}`", _default(item)


def _options() -> Iterator[tuple[str, str, str, str]]:
    """Yield the fields of `Options` with the help texts of the options of `compile`."""
    meanings = {
        a.dest: a.help or "" for a in parsers_of(_parser(verbs()))["compile"]._actions
    }
    for item in dataclasses.fields(Options):
        text = meanings.get(item.name, "")
        yield (
            f"`{item.name}`",
            f"`{item.type}`",
            _default(item),
            cell(text.replace("<", "&lt;")),
        )


def _default(item: dataclasses.Field[Any]) -> str:
    if item.default is dataclasses.MISSING:
        return ""
    shown = repr(item.default)
    return f"`{shown}`" if len(shown) < 30 else ""


def _signature(name: str, thing: Any) -> str:
    """Return a signature as in the source; a long one has one parameter per line."""
    said = inspect.signature(thing)
    returned = f" -> {said.return_annotation}"
    if said.return_annotation is inspect.Signature.empty:
        returned = ""
    text = f"def {name}({', '.join(_parameters(said))}){returned}"
    if len(text) <= 88:
        return text
    lines = ",\n    ".join(_parameters(said))
    return f"def {name}(\n    {lines},\n){returned}"


def _parameters(said: inspect.Signature) -> Iterator[str]:
    """Return the parameters as in the source; a default function is shown by name."""
    star = False
    for parameter in said.parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not star:
            star = True
            yield "*"
        prefix = "**" if parameter.kind is inspect.Parameter.VAR_KEYWORD else ""
        known = parameter.annotation is not inspect.Parameter.empty
        text = f"{prefix}{parameter.name}" + (
            f": {parameter.annotation}" if known else ""
        )
        default = parameter.default
        if default is not inspect.Parameter.empty:
            shown = default.__name__ if inspect.isroutine(default) else repr(default)
            text += f" = {shown}"
        yield text


def _prose(thing: Any) -> str:
    """Return a docstring as paragraphs; empty for a generated dataclass docstring."""
    said = inspect.getdoc(thing) or ""
    return (
        ""
        if said.startswith(f"{getattr(thing, '__name__', '')}(")
        else textwrap.dedent(said)
    )
