"""The grammar on the page of module text is that of the parser, and its programs run."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from firmwright.base.dtypes import DTYPES
from firmwright.base.errors import ModelError
from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model
from firmwright.flows.verify.verification import verify
from firmwright.ir.parser import parse_module
from firmwright.ir.pass_catalog import PASS_NAMES
from firmwright.ir.printer import print_module
from firmwright.ir.tir.interpreter import Interpreter
from firmwright.ir.tir.plan import BufferKind
from firmwright.ir.tir.printer import KEYWORDS, LOGICAL, OPERATORS
from firmwright.ops.intrinsics import BASE_INTRINSICS
from firmwright.pipeline import load_module, load_module_bytes
from tests.unit.ir.grammar import (
    Generator,
    Recognizer,
    Rule,
    read_grammar,
    tokens_of,
    words_of,
)
from tests.unit.ir.tir_page import render_tir_page

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/reference/fwir.md").read_text(encoding="utf-8")
RULES = read_grammar(re.findall(r"```ebnf\n(.*?)```", PAGE, re.DOTALL)[0])
EXAMPLES = dict(re.findall(r"```fwir (\S+)\n(.*?)```", PAGE, re.DOTALL))
RECOGNIZER = Recognizer(RULES, KEYWORDS)


def without_data(text: str) -> str:
    return re.split(r"^data \{[ \t]*$", text, maxsplit=1, flags=re.MULTILINE)[0]


def file_texts() -> Iterator[str]:
    """Yield the texts of the tests' files that are valid, and those of the page."""
    yield from EXAMPLES.values()
    for path in sorted((ROOT / "tests").rglob("*.fwir")):
        for part in re.split(r"^; ----.*$", path.read_text(), flags=re.MULTILINE):
            if syntax_error(part) is False:
                yield with_version(part)


def with_version(text: str) -> str:
    return text if "firmwright ir" in text else f"firmwright ir 2\n{text}"


def syntax_error(text: str) -> bool | None:
    """Whether the parser finds a word that the grammar excludes; None: another rule."""
    try:
        parse_module(with_version(text), structure_only=True)
    except ModelError as error:
        return True if error.what.startswith("found ") else None
    return False


def test_words_of_the_grammar_are_those_of_the_parser() -> None:
    for rule, has_fractions in (("integer", False), ("real", True)):
        kinds = [kind for kind in DTYPES if kind.has_fractions is has_fractions]
        names = {name for kind in kinds for name in (kind.name, kind.short)}
        assert set(words_of(RULES[rule])) == names
    signs = {symbol for symbol, _ in (*OPERATORS.values(), *LOGICAL.values())}
    assert set(words_of(RULES["infix"])) == signs
    assert words_of(RULES["kind"]) == [*get_args(BufferKind), "reg"]
    listed = re.search(r"names, too\): `(.*?)`\.", PAGE, re.DOTALL)
    assert listed
    assert frozenset(listed[1].split()) == KEYWORDS


def test_every_text_of_the_tests_is_one_of_the_grammar() -> None:
    texts = list(file_texts())
    assert len(texts) > 40
    for text in texts:
        assert RECOGNIZER.accepts(tokens_of(without_data(text))), text


def test_modules_of_each_level_are_texts_of_the_grammar() -> None:
    module = load_module(ROOT / "examples/01_digits/digits.tflite")
    stages = {}
    compile_for(
        Model(module),
        "mps2-an386",
        watch=lambda name, step: stages.update({name: step}),
    )
    for after in ("partition", "lower-select", "final-dce"):
        text = print_module(stages[after], elide_constants=True)
        assert RECOGNIZER.accepts(tokens_of(text)), after


def test_random_texts_of_the_grammar_are_parsed() -> None:
    """They may break rules beyond the grammar, but have no word in a wrong place."""
    rng = random.Random(46)
    generator, counts = Generator(RULES, rng), {True: 0, False: 0, None: 0}
    for _ in range(1000):
        words = generator.words(Rule("section"), 12)
        text = " ".join(["firmwright", "ir", "2", *words])
        found = syntax_error(text)
        counts[found] += 1
        assert not found, text
        assert RECOGNIZER.accepts(tokens_of(text))
    assert counts[False] > 80


def test_changed_texts_are_refused_by_both_or_by_none() -> None:
    rng, counts = random.Random(146), {True: 0, False: 0, None: 0}
    sources = [tokens_of(without_data(text)) for text in file_texts()]
    everything = [token.text for tokens in sources for token in tokens]
    for _ in range(250):
        words = [token.text for token in rng.choice(sources)]
        place = rng.randrange(3, len(words))
        match rng.randrange(3):
            case 0:
                del words[place]
            case 1:
                words.insert(place, rng.choice(everything))
            case _:
                words[place] = rng.choice(everything)
        text = " ".join(words)
        found = syntax_error(text)
        counts[found] += 1
        if found is not None:
            assert RECOGNIZER.accepts(tokens_of(text)) is not found, text
    assert counts[True] > 75
    assert counts[False] > 8


def test_the_page_of_tir_is_current(request: pytest.FixtureRequest) -> None:
    page = ROOT / "docs/reference/tir.md"
    if request.config.getoption("--update-golden"):
        page.write_text(render_tir_page(), encoding="utf-8")
    written = page.read_text(encoding="utf-8")
    assert written == render_tir_page(), "--update-golden rewrites the page"


def test_the_page_of_passes_has_each_pass_in_its_order() -> None:
    page = (ROOT / "docs/reference/passes.md").read_text(encoding="utf-8")
    assert tuple(re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE)) == PASS_NAMES


@pytest.mark.host_c
def test_the_first_program_of_the_page_gives_its_values() -> None:
    module = load_module_bytes(EXAMPLES["gate.fwir"].encode(), "gate.fwir")
    with open_session(compile_for(Model(module), "host")) as session:
        (found,) = session.run_all([{"x": np.array([[1, 2, 3]], np.float32)}])
    np.testing.assert_array_equal(found["y"], [[3.46875, 0.1875]])
    np.testing.assert_array_equal(found["largest"], [3.46875])


@pytest.mark.host_c
def test_the_quantized_program_of_the_page_is_verified() -> None:
    module = load_module_bytes(EXAMPLES["filter.fwir"].encode(), "filter.fwir")
    assert verify(compile_for(Model(module), "host"), samples=3).mismatches == 0


def test_the_kernel_of_the_page_runs() -> None:
    module = parse_module(EXAMPLES["twice.fwir"])
    interpreter = Interpreter(module.functions, BASE_INTRINSICS, {})  # type: ignore[arg-type]  # all are kernels
    x, y = np.array([1, -2, 100, -100], np.int8), np.zeros(4, np.int8)
    interpreter.run("double", {"x": x, "y": y})
    np.testing.assert_array_equal(y, [2, -4, 127, -128])
