"""Exceptions in backends are errors of the backend: hook, function, file and exit status."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from toy_backends import chain

import firmwright as fw
from firmwright.base.errors import PluginError
from firmwright.cli.main import main
from firmwright.ir.graph.patterns import op
from firmwright.ir.printer import print_module
from firmwright.targets.backend import Backend, PatternEntry
from firmwright.targets.backend_registry import BACKENDS

SOURCE = """
from firmwright.ir.graph.patterns import op
from firmwright.ir.module import Pass
from firmwright.targets.backend import Backend, PatternEntry

def broken(*args):
    return {}["key"]

class Npu(Backend):
    name = "npu"

    def patterns(self):
        return [PatternEntry("curve", op("tanh"))]

    def generate(self, kernel):
        kernel.extern("npu_run", [kernel.inputs[0], kernel.outputs[0]])
"""
PASS = 'return {"%s": [Pass("mine", broken)]}'
CASES = {
    "import": ("\nbroken()\n", "the import of npu:Npu, the entry point of the backend npu,"),
    "__init__": ("def __init__(self): broken()", "the backend npu"),
    "patterns": ("def patterns(self): broken()", "the backend npu"),
    "predicate": (
        "def patterns(self): return [PatternEntry('curve', op('tanh'), broken)]",
        r"the predicate of npu.curve, for the tanh that computes a,",
    ),
    "generate": ("generate = broken", "`generate` of target npu, for the function @npu_tanh_0,"),
    "lower": ("lower = broken", "`lower` of target npu, for the function @npu_tanh_0,"),
    "call": (
        "generate = lambda self, kernel: kernel.call('sin')",
        "`generate` of target npu, for the function @npu_tanh_0,",
    ),
    "tir_to_runtime": (
        "def tir_to_runtime(self): return [Pass('mine', broken)]",
        r"`tir_to_runtime` of target npu \(mine\)",
    ),
    "post_partition": (
        "def phases(self): " + PASS % "post_partition",
        "the post_partition pass mine of target npu",
    ),
    "c_files": ("c_files = broken", "`c_files` or `c_flags` of the backend npu"),
}


@pytest.fixture
def failing(install: Callable[[str, str, dict[str, str]], None]) -> Callable[[str], None]:
    def installed(case: str) -> None:
        text = CASES[case][0]
        source = SOURCE if case != "lower" else SOURCE.replace("def generate", "def other")
        indented = text if text.startswith("\n") else f"\n    {text}\n"
        install("npu", "npu:Npu", {"__init__.py": source + indented})

    return installed


@pytest.mark.parametrize("case", CASES)
def test_exception_in_a_backend_names_hook_function_and_file(
    case: str, failing: Callable[[str], None], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    failing(case)
    model = tmp_path / "toy.fwir"
    model.write_text(print_module(chain(("tanh", "x", "a"))))
    words = ["compile", str(model), "--target", "npu", "-o", str(tmp_path / "out")]
    assert main([*words, "--json"]) == 2
    shown = capsys.readouterr()
    error = json.loads(shown.out)["error"]
    assert (error["code"], shown.err) == ("plugin", "")
    raised = r"InternalError: \w+ has no call of sin" if case == "call" else "KeyError: 'key'"
    assert re.fullmatch(rf"{CASES[case][1]} raised {raised}\.", error["what"])
    assert re.search(r"/npu/__init__\.py:\d+, in (broken|<lambda>)$", error["where"])
    assert "--debug" in error["hint"]


def test_error_of_an_import_is_in_the_extension_with_the_backport_of_importlib(
    failing: Callable[[str], None],
) -> None:
    pytest.importorskip("importlib_metadata")
    failing("import")
    with pytest.raises(PluginError) as raised:
        BACKENDS.find("npu")
    assert re.search(r"/npu/__init__\.py:\d+, in broken$", str(raised.value.where))


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ("unknown", "@npu_tanh_0: intrinsic unknown is unknown"),
        ("smlad", "@npu_tanh_0: intrinsic smlad has 2 arguments, expected 3"),
    ],
)
def test_invalid_kernels_are_refused_at_the_hook(
    call: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Npu(Backend):
        name = "npu"

        def patterns(self):
            return [PatternEntry("curve", op("tanh"))]

        def lower(self, kernel):
            kernel.run(call, [kernel.inputs[0], kernel.outputs[0]])

    monkeypatch.setattr(BACKENDS, "_known", {})
    fw.register_backend(Npu)
    with pytest.raises(
        PluginError, match=f"`lower` of target npu made an invalid kernel: {problem}"
    ):
        fw.compile(chain(("tanh", "x", "a")), target="npu")
