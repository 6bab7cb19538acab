"""A recognizer and a generator of texts, both from a grammar in EBNF.

The grammar is that of docs/reference/fwir.md, which describes its notation. Texts are
lists of tokens, as the tokenizer of module text splits them.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from firmwright.base.tokenizer import Token, Tokenizer, TokenKind

_SYMBOL = re.compile(r'"[^"]+"|\w+|[^\s\w]')
Part: TypeAlias = "Word | Rule | Sequence_ | Choice | Optional_ | Repeat"


@dataclass(frozen=True)
class Word:
    text: str


@dataclass(frozen=True)
class Rule:
    name: str


@dataclass(frozen=True)
class Sequence_:
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Choice:
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Optional_:
    part: Part


@dataclass(frozen=True)
class Repeat:
    part: Part


class _Reader:
    def __init__(self, text: str) -> None:
        self.symbols = _SYMBOL.findall(text)

    def rules(self) -> dict[str, Part]:
        rules: dict[str, Part] = {}
        while self.symbols:
            name, equals = self.symbols.pop(0), self.symbols.pop(0)
            assert equals == "=", name
            rules[name] = self.choice()
            assert self.symbols.pop(0) == ";", name
        return rules

    def choice(self) -> Part:
        parts = [self.sequence()]
        while self.symbols[0] == "|":
            self.symbols.pop(0)
            parts.append(self.sequence())
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def sequence(self) -> Part:
        parts: list[Part] = []
        while self.symbols[0] not in ("|", ";", ")", "]", "}"):
            symbol = self.symbols.pop(0)
            match symbol:
                case "(" | "[" | "{":
                    inner = self.choice()
                    self.symbols.pop(0)
                    if symbol == "[":
                        inner = Optional_(inner)
                    elif symbol == "{":
                        inner = Repeat(inner)
                    parts.append(inner)
                case _ if symbol.startswith('"'):
                    parts.append(Word(symbol[1:-1]))
                case _:
                    parts.append(Rule(symbol))
        return parts[0] if len(parts) == 1 else Sequence_(tuple(parts))


def read_grammar(text: str) -> dict[str, Part]:
    return _Reader(text).rules()


def words_of(part: Part) -> list[str]:
    """Return the words of a rule, such as the signs of operators."""
    match part:
        case Word(text):
            return [text]
        case Sequence_(parts) | Choice(parts):
            return [word for each in parts for word in words_of(each)]
        case Optional_(inner) | Repeat(inner):
            return words_of(inner)
    return []


def tokens_of(text: str) -> list[Token]:
    tokenizer, tokens = Tokenizer(text, "text"), list[Token]()
    while not tokenizer.at_end:
        tokens.append(tokenizer.next())
    return tokens


_KINDS = {
    "IDENT": TokenKind.IDENT,
    "LOCAL": TokenKind.LOCAL,
    "GLOBAL": TokenKind.GLOBAL,
    "INT": TokenKind.INT,
    "FLOAT": TokenKind.FLOAT,
    "STRING": TokenKind.STRING,
}


@dataclass
class Recognizer:
    """Whether tokens are a text of the grammar; `free` excludes the reserved words."""

    rules: Mapping[str, Part]
    reserved: frozenset[str]
    tokens: Sequence[Token] = ()
    known: dict[tuple[str, int], frozenset[int]] = field(default_factory=dict)

    def accepts(self, tokens: Sequence[Token], rule: str = "text") -> bool:
        self.tokens, self.known = tokens, {}
        return len(tokens) in self.ends(Rule(rule), 0)

    def ends(self, part: Part, start: int) -> frozenset[int]:
        """Return the places at which `part` can end that begins at `start`."""
        match part:
            case Word(text):
                return self._token(start, text, (TokenKind.IDENT, TokenKind.PUNCT))
            case Rule(name) if name not in self.rules:
                return self._terminal(name, start)
            case Rule(name):
                if (name, start) not in self.known:
                    self.known[name, start] = self.ends(self.rules[name], start)
                return self.known[name, start]
            case Choice(parts):
                return frozenset().union(*(self.ends(each, start) for each in parts))
            case Optional_(inner):
                return self.ends(inner, start) | {start}
            case Repeat(inner):
                return self._repeated(inner, start)
            case Sequence_(parts):
                places = frozenset({start})
                for each in parts:
                    places = frozenset().union(*(self.ends(each, k) for k in places))
                return places

    def _repeated(self, inner: Part, start: int) -> frozenset[int]:
        places, fresh = {start}, {start}
        while fresh:
            found = frozenset().union(*(self.ends(inner, k) for k in fresh))
            fresh = set(found - places)
            places |= fresh
        return frozenset(places)

    def _token(
        self, start: int, text: str, kinds: Sequence[TokenKind]
    ) -> frozenset[int]:
        if start == len(self.tokens):
            return frozenset()
        token = self.tokens[start]
        fits = token.kind in kinds and (not text or token.text == text)
        return frozenset({start + 1}) if fits else frozenset()

    def _terminal(self, name: str, start: int) -> frozenset[int]:
        if start == len(self.tokens):
            return frozenset()
        token = self.tokens[start]
        match name:
            case "FREE" if token.text in self.reserved:
                return frozenset()
            case "HASH" if not token.text.startswith("sha256."):
                return frozenset()
            case "FREE" | "HASH":
                return self._token(start, "", (TokenKind.IDENT,))
        return self._token(start, "", (_KINDS[name],))


_EXAMPLES = {
    "IDENT": ("a", "b", "conv.x"),
    "FREE": ("a", "b"),
    "HASH": ("sha256." + "0" * 64,),
    "LOCAL": ("%a", "%b", '%"c/d:0"'),
    "GLOBAL": ("@f", "@g", '@"h/i"'),
    "INT": ("0", "1", "2", "0x10", "-3"),
    "FLOAT": ("0.5", "-1e-3", "inf"),
    "STRING": ('"x"', '"y\\n"'),
}


@dataclass
class Generator:
    """Random texts of the grammar."""

    rules: Mapping[str, Part]
    rng: random.Random
    shortest: dict[str, float] = field(default_factory=dict)

    def words(self, part: Part, depth: int) -> list[str]:
        """Return the tokens of a random text; below depth 0, of a short one."""
        match part:
            case Word(text):
                return [text]
            case Rule(name) if name not in self.rules:
                return [self.rng.choice(_EXAMPLES[name])]
            case Rule(name):
                return self.words(self.rules[name], depth - 1)
            case Sequence_(parts):
                return [word for each in parts for word in self.words(each, depth)]
            case Choice(parts):
                if depth < 0:
                    return self.words(min(parts, key=self._least), depth)
                return self.words(self.rng.choice(parts), depth)
            case Optional_(inner):
                wanted = depth >= 0 and self.rng.random() < 0.5
                return self.words(inner, depth) if wanted else []
            case Repeat(inner):
                count = self.rng.randrange(3) if depth >= 0 else 0
                return [w for _ in range(count) for w in self.words(inner, depth)]

    def _least(self, part: Part) -> float:
        """Return the length of the shortest text."""
        match part:
            case Rule(name):
                return self.shortest.get(name, 1)
            case Sequence_(parts):
                return sum(map(self._least, parts))
            case Choice(parts):
                return min(map(self._least, parts))
            case Optional_() | Repeat():
                return 0
        return 1

    def __post_init__(self) -> None:
        self.shortest = dict.fromkeys(self.rules, math.inf)
        for _ in self.rules:
            for name, part in self.rules.items():
                self.shortest[name] = self._least(part)
