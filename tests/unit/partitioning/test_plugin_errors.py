"""Exceptions in backends are the backend's errors: hook, function, file and status."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import NoReturn

import pytest

import firmwright as fw
from firmwright.base.errors import PluginError
from firmwright.cli.main import main
from firmwright.ir.core import PoolInfo
from firmwright.ir.graph.patterns import op
from firmwright.ir.printer import print_module
from firmwright.ir.tir.plan import BufferInfo, Plan, Planner
from firmwright.targets.backend import Backend, PatternEntry
from firmwright.targets.backend_registry import BACKENDS
from firmwright.usmp import planner_registry
from firmwright.usmp.heuristics import greedy_by_size
from firmwright.usmp.interference import Constraints
from tests.backends.toy_backends import chain

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
    "import": (
        "\nbroken()\n",
        "the import of npu:Npu, the entry point of the backend npu,",
    ),
    "__init__": ("def __init__(self): broken()", "the backend npu"),
    "patterns": ("def patterns(self): broken()", "`patterns` of the backend npu"),
    "predicate": (
        "def patterns(self): return [PatternEntry('curve', op('tanh'), broken)]",
        r"the predicate of npu.curve, for the tanh that computes a,",
    ),
    "generate": (
        "generate = broken",
        "`generate` of target npu, for the function @npu_tanh_0,",
    ),
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
    "c_files": ("c_files = broken", "`c_files` of the backend npu"),
    "c_flags": ("c_flags = broken", "`c_flags` of the backend npu"),
    "cost": (
        "cost = broken",
        "`cost` of the backend npu, for the tanh that computes a,",
    ),
    "rejections": (
        "rejections = broken",
        "`rejections` of the backend npu, for the graph @main,",
    ),
    "phases": ("phases = broken", "`phases` of the backend npu"),
    "features": ("features = broken", "`features` of the backend npu"),
}
WRONG_RESULTS = {
    "cost = lambda *_: 'cheap'": "computes a, returned 'cheap'",
    "cost = lambda *_: -1": "`cost` of the backend npu, for the tanh that computes a, returned -1",
    "cost = lambda *_: True": "computes a, returned True",
    "cost = lambda *_: 2.5": "computes a, returned 2.5",
    "rejections = lambda *_: {'a': 3}": "for the graph @main, returned ('a', 3)",
    "rejections = lambda *_: 3": "for the graph @main, raised TypeError",
    "patterns = lambda *_: 3": "`patterns` of the backend npu raised TypeError",
    "patterns = lambda *_: [op('tanh')]": "`patterns` of the backend npu raised",
    "phases = lambda *_: 3": "`phases` of the backend npu raised",
    "tir_to_runtime = lambda *_: 3": "`tir_to_runtime` of the backend npu raised",
    "features = lambda *_: 3": "`features` of the backend npu returned 3",
    "c_files = lambda *_: {'npu.c': 'text'}": "`c_files` of the backend npu returned",
    "c_flags = lambda *_: [3]": "`c_flags` of the backend npu returned 3",
}


@pytest.fixture
def failing(
    install: Callable[[str, str, dict[str, str]], None],
) -> Callable[[str], None]:
    def installed(case: str) -> None:
        text = CASES[case][0]
        source = (
            SOURCE if case != "lower" else SOURCE.replace("def generate", "def other")
        )
        indented = text if text.startswith("\n") else f"\n    {text}\n"
        install("npu", "npu:Npu", {"__init__.py": source + indented})

    return installed


@pytest.mark.parametrize("case", CASES)
def test_exception_in_a_backend_names_hook_function_and_file(
    case: str,
    failing: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    failing(case)
    model = tmp_path / "toy.fwir"
    model.write_text(print_module(chain(("tanh", "x", "a"))))
    words = ["compile", str(model), "--target", "npu", "-o", str(tmp_path / "out")]
    assert main([*words, "--json"]) == 2
    shown = capsys.readouterr()
    error = json.loads(shown.out)["error"]
    assert (error["code"], shown.err) == ("plugin", "")
    raised = (
        r"InternalError: \w+ has no call of sin"
        if case == "call"
        else "KeyError: 'key'"
    )
    assert re.fullmatch(rf"{CASES[case][1]} raised {raised}\.", error["what"])
    assert re.search(r"/npu/__init__\.py:\d+, in (broken|<lambda>)$", error["where"])
    assert "--debug" in error["hint"]


@pytest.mark.parametrize("method", WRONG_RESULTS)
def test_a_result_of_the_wrong_type_is_an_error_of_the_backend(
    method: str,
    install: Callable[[str, str, dict[str, str]], None],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    install("npu", "npu:Npu", {"__init__.py": f"{SOURCE}\n    {method}\n"})
    model = tmp_path / "toy.fwir"
    model.write_text(print_module(chain(("tanh", "x", "a"))))
    assert (
        main(["compile", str(model), "--target", "npu", "-o", str(tmp_path / "out")])
        == 2
    )
    assert WRONG_RESULTS[method] in capsys.readouterr().err


def test_only_one_module_calls_the_methods_of_backends() -> None:
    methods = {
        "cost",
        "rejections",
        "transfer",
        "library",
        "c_files",
        "c_flags",
        "patterns",
    }
    doors = {"backend_calls.py", "backend.py"}
    callers = []
    for file in sorted(Path(fw.__file__).parent.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if file.name in doors or "backend" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Call(func=ast.Attribute(owner, name)) if name in methods:
                    if "backend" in ast.unparse(owner):
                        callers.append(f"{file.name}:{node.lineno}")
    assert callers == []


def broken_planner(*_: object) -> NoReturn:
    raise KeyError("key")


def overlapping_planner(
    buffers: Sequence[BufferInfo], constraints: Constraints, pools: Sequence[PoolInfo]
) -> Plan:
    plan = greedy_by_size(buffers, constraints, pools)
    places = {name: replace(place, offset=0) for name, place in plan.placements.items()}
    return replace(plan, placements=places)


@pytest.mark.parametrize(
    ("planner", "problem"),
    [
        (broken_planner, "raised KeyError: 'key'"),
        (overlapping_planner, "raised InternalError"),
    ],
)
def test_a_defect_of_an_installed_planner_is_an_error_of_its_package(
    planner: Planner, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = EntryPoint("theirs", "theirs:plan", "firmwright.planners")
    monkeypatch.setattr(planner_registry, "_installed", lambda: {"theirs": point})
    monkeypatch.setattr(planner_registry, "load_entry_point", lambda point: planner)
    with pytest.raises(PluginError, match=f"the planner theirs {problem}"):
        fw.compile(chain(("tanh", "x", "a"), ("sin", "a", "b")), planner="theirs")


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
