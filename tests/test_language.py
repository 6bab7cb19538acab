"""Checks the language: glossary, names, docstrings, comments, messages and pages.

The limits are rates per 1,000 words, because a few uses of a word such as "what" are
good English. Words that are never needed in a technical text have no allowance.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.project_files import project_files

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "toolchain" / "firmwright"
MODULES = sorted(PACKAGE.rglob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
C_FOLDERS = (ROOT / "runtime_c", ROOT / "toolchain" / "firmwright" / "extensions")
C_FILES = sorted(file for folder in C_FOLDERS for file in folder.rglob("*.[ch]"))

WORD = re.compile(r"[A-Za-z][\w'-]*")
RATED = {
    "what": r"\bwhat\b",
    "lie, stand": r"\b(lie|lies|lay|stand|stands|stood)\b",
    "say, tell": r"\b(say|says|said|told|tells)\b",
    "behind, beside": r"\b(behind|beside)\b",
}
DOCSTRING_LIMITS = {
    "what": 1.0,
    "lie, stand": 0.3,
    "say, tell": 0.3,
    "behind, beside": 0.2,
}
"""Uses per 1,000 words of docstrings; pages may have three times as many."""
BANNED = re.compile(
    r"\b(nobody|somebody|everybody|so many|so much|as many as|none but|nothing but|all that is|"
    r"what is not|who (takes|has|does|makes|reads)|lies in|stands in for|is told|are told)\b",
    re.IGNORECASE,
)
MODULE_LINES_MAX = 450
PROGRAM_LINES_MAX = {"check_bundle.py": 940}
"""Programs of one file, which others read and run without the package."""
FUNCTION_LINES_MAX = 60
ANY_PER_1000_LINES_MAX = 2.5
"""Most that remain are numpy functions' arguments, and objects of untyped packages."""


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def definitions(file: Path) -> tuple[ast.AST, ...]:
    """Return the module, and its classes and functions, which are in no expression."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found, rest = list[ast.AST](), list[ast.AST]([tree_of(file)])
    while rest:
        node = rest.pop()
        if isinstance(node, kinds):
            found.append(node)
        rest += (
            part
            for part in ast.iter_child_nodes(node)
            if not isinstance(part, ast.expr)
        )
    return tuple(found)


@cache
def docstrings() -> tuple[tuple[str, str], ...]:
    """Place and text of every docstring of the package."""
    return tuple(
        (f"{file.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}", text)
        for file in MODULES
        for node in definitions(file)
        if (text := ast.get_docstring(node))
    )


@cache
def pages() -> tuple[tuple[str, str], ...]:
    """Name and prose of every page, without code."""
    result = []
    for file in PAGES:
        text = re.sub(
            r"```.*?```", " ", file.read_text(encoding="utf-8"), flags=re.DOTALL
        )
        text = re.sub(r"`[^`]*`|<!--.*?-->|\|", " ", text, flags=re.DOTALL)
        result.append((str(file.relative_to(ROOT)), text))
    return tuple(result)


def messages(file: Path) -> Iterator[tuple[str, str]]:
    """Place and text of a module's comments, and of its strings of several words."""
    documented = {
        line
        for node in definitions(file)
        if ast.get_docstring(node)
        for line in range(node.body[0].lineno, node.body[0].end_lineno + 1)
    }
    for token in tokenize.generate_tokens(
        io.StringIO(file.read_text(encoding="utf-8")).readline
    ):
        is_text = token.type in (tokenize.COMMENT, tokenize.STRING)
        if is_text and token.start[0] not in documented and token.string.count(" ") > 1:
            yield f"{file.relative_to(ROOT)}:{token.start[0]}", token.string


def words_in(texts: tuple[tuple[str, str], ...]) -> int:
    return sum(len(WORD.findall(text)) for _, text in texts)


def over_limit(texts: tuple[tuple[str, str], ...], factor: int) -> dict[str, float]:
    words = words_in(texts)
    rates = {
        name: 1000 * sum(len(re.findall(rule, text, re.I)) for _, text in texts) / words
        for name, rule in RATED.items()
    }
    return {
        name: rate
        for name, rate in rates.items()
        if rate > factor * DOCSTRING_LIMITS[name]
    }


def test_docstrings_use_plain_sentences():
    assert over_limit(docstrings(), 1) == {}


def test_pages_use_plain_sentences():
    assert over_limit(pages(), 3) == {}


def test_no_text_has_a_banned_phrase():
    suspects = [
        file for file in MODULES if BANNED.search(file.read_text(encoding="utf-8"))
    ]
    texts = [
        *docstrings(),
        *pages(),
        *(text for file in suspects for text in messages(file)),
    ]
    texts += [
        (str(file.relative_to(ROOT)), file.read_text(encoding="utf-8"))
        for file in C_FILES
    ]
    hits = [
        f"{place}: {match[0]}"
        for place, text in texts
        for match in BANNED.finditer(text)
    ]
    assert hits == []


def test_no_page_has_a_paragraph_twice():
    """A superseded paragraph left after its replacement shares most of its words."""
    twice = []
    for name, page in pages():
        paragraphs = [text for text in page.split("\n\n") if "---" not in text]
        words = [set(re.findall(r"[\w-]{4,}", text)) for text in paragraphs]
        for k, own in enumerate(words):
            for later in words[k + 1 : k + 4]:
                fewer = min(len(own), len(later))
                if fewer > 10 and len(own & later) > 0.55 * fewer:
                    twice.append(f"{name}: {paragraphs[k][:80]}")
    assert twice == []


def test_modules_and_functions_are_small():
    lines = {file: file.read_text(encoding="utf-8").count("\n") for file in MODULES}
    assert [
        file.name
        for file, count in lines.items()
        if count > PROGRAM_LINES_MAX.get(file.name, MODULE_LINES_MAX)
    ] == []
    long_functions = [
        f"{file.name}:{node.name}"
        for file in MODULES
        for node in definitions(file)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno - node.lineno >= FUNCTION_LINES_MAX
    ]
    assert long_functions == []


def test_few_types_are_any():
    texts = [file.read_text(encoding="utf-8") for file in MODULES]
    uses = sum(len(re.findall(r"\bAny\b", text)) for text in texts)
    lines = sum(text.count("\n") for text in texts)
    assert 1000 * uses <= ANY_PER_1000_LINES_MAX * lines


def test_no_line_is_exempt_from_the_formatter():
    mark = "fmt: " + "skip"
    python = [name for name in project_files() if name.endswith((".py", "SConstruct"))]
    assert len(python) > 1000
    assert [
        name for name in python if mark in (ROOT / name).read_text(encoding="utf-8")
    ] == []


def test_a_public_class_name_occurs_once():
    names = Counter(
        node.name
        for file in MODULES
        for node in tree_of(file).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []


@cache
def glossary() -> list[list[str]]:
    """The cells of each row: term, definition, equivalent, and the names in code."""
    text = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|") and not line.startswith("|---")
    ]
    return [row for row in rows if row[0] != "term"]


def test_the_glossary_is_complete():
    terms = [row[0] for row in glossary()]
    assert len(terms) == len(set(terms))
    assert [row[0] for row in glossary() if len(row) != 5 or not row[1]] == []


def test_the_glossary_names_what_exists():
    classes = {
        node.name
        for file in MODULES
        for node in tree_of(file).body
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
    }
    named = {name for row in glossary() for name in re.findall(r"`([^`]*)`", row[3])}
    assert named - classes == set()


def test_the_glossary_names_existing_options():
    golden = (ROOT / "tests" / "golden" / "test_public_surface").glob("*.txt")
    surface = "\n".join(file.read_text(encoding="utf-8") for file in golden)
    named = {
        option for row in glossary() for option in re.findall(r"`(--[\w-]+)", row[4])
    }
    assert {
        option for option in named if not re.search(rf"(?<![\w-]){option}\b", surface)
    } == set()
