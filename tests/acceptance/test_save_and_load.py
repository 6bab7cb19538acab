"""A module saved after any pass, read back and compiled on gives the same bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Set

import pytest

from firmwright.ir.module import IRModule
from firmwright.ir.printer import parse_module, print_module
from firmwright.pipeline import Compilation, Options, compile_model

BOARD = "mps2-an386"
INT8 = ("kws", "ad", "ic", "vww", "ww")
LATE = {"externalize-constants", "final-dce"}
"""The passes of constants that are not linked, and those after."""
SOME = {
    "",
    "sink-transposes",
    "reorder-calls",
    "elide-copies",
    "lower-select",
    "usmp",
    "outline-common-kernels",
    "dedupe-functions",
}
FLOAT = ("kws_float", "ad_float", "ic_float", "vww_float")

Compile = Callable[..., Compilation]


def test_digits_compilation_resumes_after_every_pass(compiled: Compile, deep: bool) -> None:
    """By default after each pass that does much, and some of the others."""
    check_every_stage(compiled("digits", board=BOARD), Options(board=BOARD), None if deep else SOME)


def test_unlinked_constants_survive_every_pass(compiled: Compile) -> None:
    options = {"board": BOARD, "link_params": False}
    check_every_stage(compiled("digits", **options), Options(**options), LATE)


@pytest.mark.models
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == "ad" else pytest.mark.deep) for n in INT8 + FLOAT]
)
def test_compilation_resumes_after_every_pass(name: str, compiled: Compile, deep: bool) -> None:
    stages = None if deep else {"lower-select", "usmp"}
    check_every_stage(compiled(name, board=BOARD), Options(board=BOARD), stages)


def check_every_stage(whole: Compilation, options: Options, only: Set[str] | None = None) -> None:
    saved = {"": print_module(whole.imported)}

    def watch(name: str, module: IRModule) -> None:
        saved[name] = print_module(module)

    compile_model(whole.imported, options, watch=watch)
    assert len(saved) > 10, "the passes are not seen"
    for name in saved if only is None else only:
        module = parse_module(saved[name], f"{name}.fwir")
        assert print_module(module) == saved[name], name
        again = compile_model(module, options)
        assert files_of(again) == files_of(whole), f"after {name or 'import'}"


def files_of(compiled: Compilation) -> dict[str, object]:
    """Return the files of the project; a module that has kernels does not record their choice."""
    files: dict[str, object] = dict(compiled.tree.files)
    facts = json.loads(str(files["metadata.json"]))
    facts.pop("choices", None)
    return {**files, "metadata.json": facts}
