"""Module texts in which one token or the value of one attribute is replaced by junk.

The junk is of the same lexical kind, so that the texts are damaged where the grammar
does not help.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from firmwright.base.tokenizer import Token, Tokenizer, TokenKind

_LONG = '"' + "x" * 5000 + '"'
_WORDS = (TokenKind.IDENT, TokenKind.STRING)
_NAMES = (TokenKind.LOCAL, TokenKind.GLOBAL, TokenKind.STRING)
_JUNK = {
    TokenKind.STRING: ('"junk"', '""', _LONG),
    TokenKind.INT: ("0", "-1", "3", str(2**63)),
    TokenKind.FLOAT: ("0.0", "-1.5", "nan", "inf"),
    TokenKind.LOCAL: ("%junk",),
    TokenKind.GLOBAL: ("@junk",),
    TokenKind.IDENT: ("junk",),
}
_VALUES = (
    *(
        "-1",
        "0",
        str(2**63),
        "1.5",
        "nan",
        "true",
        '""',
        '"junk"',
        "[]",
        "[[]]",
        "[-1, -1]",
    ),
    *("[0, 0]", '["junk"]', f"[{2**63}, 2]", '[["a", "b"]]'),
)


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged text; `place` shows what was replaced, and by what."""

    place: str
    text: str


def damage_attributes(text: str) -> Iterator[Damage]:
    """Yield the texts in which the value of an attribute is another one."""
    tokens = _tokens(text)
    for index, token in enumerate(tokens[2:], 2):
        name, equals = tokens[index - 2 : index]
        if (
            equals.text == "="
            and name.kind in _WORDS
            and token.kind is not TokenKind.LOCAL
        ):
            end = _end_of_value(tokens[index:])
            for value in _VALUES:
                yield _replaced(text, token.offset, end, value)


def damage_tokens(text: str) -> Iterator[Damage]:
    """Yield the texts in which junk or another name or string replaces a token."""
    tokens = _tokens(text)
    names = {
        kind: sorted({t.text for t in tokens if t.kind is kind}) for kind in _NAMES
    }
    for index, token in enumerate(tokens):
        others = [name for name in names.get(token.kind, ()) if name != token.text]
        chosen = random.Random(index).choices(others, k=1) if others else []
        for value in (*_JUNK.get(token.kind, ()), *chosen):
            if value != token.text:
                yield _replaced(
                    text, token.offset, token.offset + len(token.text), value
                )


def _tokens(text: str) -> list[Token]:
    """Return the tokens before the data section, of which hashes verify the content."""
    reader = Tokenizer(text.partition("\ndata {")[0], "text")
    tokens: list[Token] = []
    while not reader.at_end:
        tokens.append(reader.next())
    return tokens


def _end_of_value(tokens: list[Token]) -> int:
    """Return where the value ends that begins with the first of `tokens`."""
    depth = 0
    for token in tokens:
        depth += (token.text == "[") - (token.text == "]")
        if depth == 0:
            return token.offset + len(token.text)
    return tokens[-1].offset


def _replaced(text: str, start: int, end: int, value: str) -> Damage:
    before = " ".join(text[max(0, start - 30) : start].split())
    place = f"{before} {text[start:end][:40]} -> {value[:40]}"
    return Damage(place, text[:start] + value + text[end:])
