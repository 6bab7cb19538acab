"""Golden texts of the public interfaces, so that changes are visible.

A change needs a line in CHANGELOG.md and, if it breaks users, a new version of the
surface (docs/reference/stability.md). `--update-golden` then writes the new text.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import firmwright as fw
from firmwright.base import version
from firmwright.boards import list_boards, load_board
from firmwright.boards.toml_table import TomlTable
from firmwright.cli.main import main, verbs
from firmwright.cli.options import add_arguments
from firmwright.device.transport import Transport
from firmwright.flows.board.model_session import ModelSession
from firmwright.flows.board.project_api import ProjectApi
from firmwright.targets.backend import Backend, PatternEntry

ROOT = Path(__file__).resolve().parents[1]
DIGITS = ROOT / "examples" / "01_digits" / "digits.tflite"
ADVICE = (
    "this is public (docs/reference/stability.md): write a line into CHANGELOG.md, raise the surface's "
    "version in base/version.py if it breaks users, then --update-golden"
)
Check = Callable[[Iterator[str]], None]


@pytest.fixture
def announced(golden: Callable[..., None]) -> Check:
    """Return a check of lines against the golden text, which says how to change it."""

    def check(lines: Iterator[str]) -> None:
        try:
            golden("\n".join(re.sub(r" at 0x[0-9a-f]+", "", line) for line in lines))
        except AssertionError as error:
            raise AssertionError(f"{error}; {ADVICE}") from None

    return check


# ---- the command line ----------------------------------------------------------------


def actions_of(verb: str) -> Iterator[argparse.Action]:
    parser = argparse.ArgumentParser(add_help=False)
    add_arguments(parser, verb)
    yield from parser._actions


def spelled(action: argparse.Action) -> str:
    """Format an option with its values; positional arguments are in angle brackets."""
    values = (
        "|".join(map(str, action.choices))
        if action.choices
        else str(action.metavar or "")
    )
    taken = "" if action.nargs == 0 else values or action.dest.upper()
    count = {None: "", 0: ""}.get(action.nargs, str(action.nargs))
    if not action.option_strings:
        return f"<{taken}{count}>"
    return " ".join(filter(None, ("/".join(action.option_strings), f"{taken}{count}")))


def test_verbs_and_their_arguments(announced: Check) -> None:
    shared = options_by_verb()
    lines = []
    for name in verbs():
        own = [
            text
            for action in actions_of(name)
            if len(shared[text := spelled(action)]) == 1
        ]
        lines.append(
            " ".join([name, *(text if text[0] == "<" else f"[{text}]" for text in own)])
        )
    announced(iter(lines))


def test_shared_options(announced: Check) -> None:
    shared = {
        text: names for text, names in options_by_verb().items() if len(names) > 1
    }
    announced(f"{text}: {', '.join(names)}" for text, names in sorted(shared.items()))


def options_by_verb() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in verbs():
        for action in actions_of(name):
            found.setdefault(spelled(action), []).append(name)
    return found


# ---- JSON ----------------------------------------------------------------------------


def keys_of(value: Any, path: str = "") -> Iterator[str]:
    """Yield every key as a path; list elements are marked with []."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"{path}.{key}".lstrip(".")
            yield from keys_of(item, f"{path}.{key}")
    elif isinstance(value, list):
        for item in value:
            yield from keys_of(item, f"{path}[]")


def said(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    main([*words, "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.host_c
def test_json_keys(
    announced: Check, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    digits, out = str(DIGITS), str(tmp_path / "out")
    runs: dict[str, tuple[str, ...]] = {
        "compile": (digits, "--board", "host", "-o", out),
        "build": (out,),
        "boards": (),
        "bugreport": (digits, "-o", str(tmp_path / "report.zip")),
        "doctor": (),
        "inspect": (digits,),
        "partition": (digits, "--target", "vanilla", "-o", str(tmp_path / "a.fwir")),
        "planners": (),
        "profile": (digits, "--runs", "1"),
        "reproduce": (out, digits),
        "run": (digits, "--samples", "1"),
        "sbom": (out, "-o", str(tmp_path / "bom.json")),
        "show": (digits,),
        "targets": (),
        "verify": (digits, "--samples", "1"),
    }
    volatile = {"bugreport": "files", "sbom": "bom", "run": "outputs"}
    lines = []
    for verb, words in runs.items():
        answer = said(capsys, verb, *words)
        assert answer["ok"], answer
        keys = dict.fromkeys(
            keys_of({k: v for k, v in answer.items() if k != volatile.get(verb)})
        )
        lines.append(f"{verb}: {' '.join(sorted(keys))}")
    error = said(capsys, "inspect", str(tmp_path / "absent.tflite"))
    lines.append(f"an error: {' '.join(sorted(dict.fromkeys(keys_of(error))))}")
    announced(iter(lines))


# ---- Python --------------------------------------------------------------------------


def members(value: Any) -> Iterator[str]:
    for name, item in sorted(vars(value).items()):
        if name.startswith("_"):
            continue
        if callable(item):
            yield f"  {name}{inspect.signature(item)}"
        elif isinstance(item, property):
            yield f"  {name} (property)"
        elif isinstance(item, (classmethod, staticmethod)):
            yield f"  {name}{inspect.signature(item.__func__)}"
        else:
            yield f"  {name}"


def described(name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        yield f"class {name}{inspect.signature(value)}"
        yield from members(value)
    elif callable(value):
        yield f"{name}{inspect.signature(value)}"
    else:
        yield name


def test_python_interface(announced: Check) -> None:
    named = {name: getattr(fw, name) for name in fw.__all__} | {
        "ModelSession": ModelSession
    }
    announced(line for name, value in named.items() for line in described(name, value))


def test_vendor_interfaces(announced: Check) -> None:
    kinds = (Backend, PatternEntry, ProjectApi, Transport)
    announced(line for kind in kinds for line in described(kind.__name__, kind))


# ---- C -------------------------------------------------------------------------------


def declarations(text: str) -> Iterator[str]:
    """Macros, types and functions of a header, each on one line, without comments."""
    plain = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL).replace("\\\n", " ")
    code = []
    for line in plain.splitlines():
        if line.startswith("#define") and not line.rstrip().endswith(("_H", "_H_")):
            yield " ".join(line.split())
        elif not line.startswith("#"):
            code.append(line)
    whole = " ".join(" ".join(code).replace('extern "C" {', " ").split())
    for part in re.split(r"(?<=;)\s(?![^{]*\})", whole):
        if part.strip(" }"):
            yield part.strip()


def test_runtime_c_interface(announced: Check) -> None:
    files = ("fwr.h", "port/fwr_port.h")
    texts = {
        file: (ROOT / "runtime_c" / file).read_text(encoding="utf-8") for file in files
    }
    announced(
        f"{file}: {line}" for file, text in texts.items() for line in declarations(text)
    )


def test_generated_header(announced: Check) -> None:
    plain = fw.compile(
        fw.load(DIGITS), board="mps2-an386", c_api="tvm", emit_step_api=True
    )
    headers = ("model/digits.h", "tvm/tvmgen_digits.h")
    lines = (
        f"{h}: {line}"
        for h in headers
        for line in declarations(str(plain.tree.files[h]))
    )
    lines = [re.sub(r"_abi_[0-9a-f]{8}", "_abi_HASH", line) for line in lines]
    announced(re.sub(r"(_(?:SIZE|OFFSET)) \d+$", r"\1 N", line) for line in lines)


# ---- boards and versions -------------------------------------------------------------


def test_board_keys(announced: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    known: set[str] = set()
    expect = TomlTable.expect_keys

    def recorded(table: TomlTable, keys: Any) -> None:
        place = re.sub(r"\[\d+\]|\.\d+", "[]", table.path)
        known.add(f"{place or '(root)'}: {' '.join(sorted(keys))}")
        expect(table, keys)

    monkeypatch.setattr(TomlTable, "expect_keys", recorded)
    for board in list_boards():
        load_board(board.name)
    announced(iter(sorted(known)))


def test_docs_state_the_version_of_every_surface() -> None:
    text = (ROOT / "docs" / "reference" / "stability.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| .*? \| `(\w+)` \| (\d+) \|", text, re.MULTILINE))
    named = {name: str(v) for name, v in vars(version).items() if isinstance(v, int)}
    assert rows == named


def test_the_changelog_has_a_section_for_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heads = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert heads[0] == "[Unreleased]"
    state = r"(\d{4}-\d\d-\d\d|not released yet)"
    assert re.fullmatch(rf"\[{re.escape(fw.__version__)}\] - {state}", heads[1])
    kinds = set(re.findall(r"^### (.*)$", text, re.MULTILINE))
    assert kinds <= {"Security", "What is new", "What breaks", "Fixed"}


def test_change_of_a_surface_is_refused_with_instructions(
    announced: Check, request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("--update-golden"):
        pytest.skip("would write a wrong text")
    with pytest.raises(AssertionError, match=r"CHANGELOG\.md"):
        announced(iter(["another surface"]))
