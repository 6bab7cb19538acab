"""The node tests that the package `onnx` ships: imported, compiled to C, run, compared.

    PYTHONPATH=toolchain python tests/onnx/backend.py [--update] [--no-c] [PREFIX...]
    PYTHONPATH=toolchain python tests/onnx/backend.py --board mps2-an386

The second form runs a test of each operator that we translate, on that board.

A test passes if the generated C gives the expected outputs within the test's own tolerance. Where
an operator needs an operand to be known, such as a shape, and the test has it as an input, that is
bound as a constant from the test's data (`--fix-input`); those tests are counted apart. What we do
not take is listed in skips.txt, each with the reason that the compiler gives; rows.txt has the test
that stands for each operator that we translate. --update writes both.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import onnx
from firmwright.base.errors import FirmwrightError, UnsupportedError
from firmwright.boards import load_board
from firmwright.flows.compilation import compile_for
from firmwright.flows.model_session import open_session
from firmwright.frontends.onnx import ModelOverrides, import_onnx, preprocess_model
from firmwright.frontends.onnx.operators.registry import onnx_importers
from firmwright.ir.graph.evaluate import evaluate_graph
from firmwright.ir.graph.nodes import Call, Function, Value
from firmwright.ir.module import IRModule
from firmwright.ops.registry import op_table
from firmwright.passes.graph import PASSES
from firmwright.pipeline import Compilation, Options, configure_module
from firmwright.schedules.registry import INTRINSICS
from onnx import TensorProto, numpy_helper

Array = NDArray[Any]
SKIPS = Path(__file__).parent / "skips.txt"
ROWS = Path(__file__).parent / "rows.txt"
TESTS_PER_IMAGE = 64
CALLS_PER_IMAGE = 150
_NODE_TESTS = "onnx.backend.test.case.node"
BEFORE_LOWERING = "rematerialize"
"""The last pass over graphs."""


@dataclass(frozen=True, slots=True)
class NodeTest:
    """One test: the model's file, inputs and expected outputs by position, tolerance."""

    name: str
    model: bytes
    input_names: tuple[str, ...]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    relative: float
    absolute: float


@dataclass(frozen=True, slots=True)
class Taken:
    """A test that is supported, as a module; `is_bound`: some inputs are constants."""

    test: NodeTest
    module: IRModule
    is_bound: bool

    @property
    def sample(self) -> dict[str, Array]:
        given = dict(zip(self.test.input_names, self.test.inputs, strict=True))
        entry = self.module.entry
        assert isinstance(entry, Function)
        return {value.name: np.asarray(given[value.name]) for value in entry.params}


class _AnyOf(str):
    """What the package compares operators with to choose the tests of one: here of several."""

    __slots__ = ("ops",)

    def __new__(cls, ops: Iterable[str]) -> _AnyOf:
        made = super().__new__(cls, " ".join(ops))
        made.ops = frozenset(ops)  # type: ignore[attr-defined]  # a slot
        return made

    def __ne__(self, other: object) -> bool:
        return other not in self.ops  # type: ignore[attr-defined]  # a slot

    __hash__ = str.__hash__


def collected(ops: Iterable[str] = ()) -> list[NodeTest]:
    """The tests of these operators, of all if none is named.

    The package makes its tests while their modules are imported, so those go before each time.
    """
    for name in [name for name in sys.modules if name.startswith(f"{_NODE_TESTS}.")]:
        del sys.modules[name]
    sys.modules.pop(_NODE_TESTS, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        found = collect_testcases(_AnyOf(ops) if ops else None)

    def array(item: Any) -> Any:
        """Some tests hold a message where all others hold an array."""
        return numpy_helper.to_array(item) if isinstance(item, TensorProto) else item

    return [
        NodeTest(
            case.name,
            case.model.SerializeToString(),
            tuple(item.name for item in case.model.graph.input),
            tuple(case.data_sets[0][0]),
            tuple(map(array, case.data_sets[0][1])),
            case.rtol if case.rtol is not None else 1e-3,
            case.atol if case.atol is not None else 1e-7,
        )
        for case in found
    ]


# ---- one test ----------------------------------------------------------------------------------


def _imported(test: NodeTest, bound: Iterable[int]) -> IRModule:
    rows = list(enumerate(zip(test.input_names, test.inputs, strict=True)))
    given = ModelOverrides(
        {n: np.shape(x) for k, (n, x) in rows if k not in bound and isinstance(x, np.ndarray)},
        {n: np.asarray(x) for k, (n, x) in rows if k in bound},
    )
    data = preprocess_model(test.model, test.name, given)
    return import_onnx(data, test.name, "test", op_table())


def _wants_constants(error: UnsupportedError) -> bool:
    return any("constant" in item.why for item in error.items)


def taken(test: NodeTest) -> Taken | str:
    """The test as a module, or why it is not supported."""
    arrays = [k for k, x in enumerate(test.inputs) if isinstance(x, np.ndarray | np.generic)]
    known = [k for k in arrays if k]
    whole = [k for k in known if test.inputs[k].dtype.kind in "iub"]
    short = [k for k in known if test.inputs[k].ndim < 2]
    # At last the first operand too, such as the shape of what is filled.
    line = [k for k in arrays if test.inputs[k].ndim < 2]
    for bound in ((), whole, sorted({*whole, *short}), sorted({*whole, *line})):
        try:
            return Taken(test, _imported(test, bound), bool(bound))
        except UnsupportedError as error:
            reason = "; ".join(dict.fromkeys(f"{i.op}: {i.why}" for i in error.items))
            if not _wants_constants(error):
                return reason
        except FirmwrightError as error:
            return str(error)
    return reason


def wrong(test: NodeTest, results: Sequence[Array]) -> str:
    """What is wrong with the results; "" if nothing is."""
    if len(results) != len(test.outputs):
        return f"{len(results)} outputs of {len(test.outputs)}"
    for got, want in zip(results, map(np.asarray, test.outputs), strict=True):
        if (got.dtype, got.shape) != (want.dtype, want.shape):
            return f"{got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
        try:
            np.testing.assert_allclose(got, want, rtol=test.relative, atol=test.absolute)
        except AssertionError as error:
            return " ".join(str(error).split())
    return ""


def by_reference(item: Taken) -> str:
    """What is wrong with the result of the operators' numpy references."""
    entry = item.module.entry
    assert isinstance(entry, Function)
    values = evaluate_graph(item.module, item.sample, op_table(), INTRINSICS)
    return wrong(item.test, [values[value.name] for value in entry.results])


# ---- many in one image -------------------------------------------------------------------------


def merged(modules: Sequence[IRModule]) -> IRModule:
    """The modules' graphs side by side; names get a number in front."""
    constants, params, body, results = {}, [], [], []
    for number, module in enumerate(modules):
        entry = module.entry
        assert isinstance(entry, Function)

        def moved(value: Value, number: int = number) -> Value:
            constant = None if value.constant is None else f"{number}.{value.constant}"
            return replace(value, name=f"{number}.{value.name}", constant=constant)

        def moved_call(call: Call, number: int = number) -> Call:
            inputs = tuple(None if v is None else moved(v, number) for v in call.inputs)
            outputs = tuple(moved(v, number) for v in call.outputs)
            return replace(call, inputs=inputs, outputs=outputs)

        params += map(moved, entry.params)
        body += map(moved_call, entry.body)
        results += map(moved, entry.results)
        constants |= {
            f"{number}.{name}": replace(constant, name=f"{number}.{name}")
            for name, constant in module.constants.items()
        }
    main = Function("main", tuple(params), tuple(body), tuple(results))
    return IRModule("cases", {"main": main}, constants, attrs={"entry": "main"})


def compiled_for(module: IRModule, board: str) -> Compilation:
    """A compilation without the search for an order, which has nothing to find here."""
    given = {"board": board, "planner": "greedy_by_size"}
    module = configure_module(module, load_board(board), Options(**given))
    for step in PASSES:
        module = step(module)
    return compile_for(module.with_attrs(stage=BEFORE_LOWERING), **given)


def grouped(items: Sequence[Taken]) -> Iterator[list[Taken]]:
    """Tests that make one image together, in order."""
    group: list[Taken] = []
    calls = 0
    for item in items:
        entry = item.module.entry
        assert isinstance(entry, Function)
        if group and (calls + len(entry.body) > CALLS_PER_IMAGE or len(group) == TESTS_PER_IMAGE):
            yield group
            group, calls = [], 0
        group.append(item)
        calls += len(entry.body)
    if group:
        yield group


def in_c(items: Sequence[Taken], board: str = "host") -> dict[str, str]:
    """What is wrong with each test's results, by name, in one compiled image."""
    compiled = compiled_for(merged([item.module for item in items]), board)
    sample = {
        f"{k}.{name}": array for k, item in enumerate(items) for name, array in item.sample.items()
    }
    with open_session(compiled, in_process=board == "host") as session:
        (results,) = session.run_all([sample])
    found = {}
    for number, item in enumerate(items):
        entry = item.module.entry
        assert isinstance(entry, Function)
        own = [results[f"{number}.{value.name}"] for value in entry.results]
        found[item.test.name] = wrong(item.test, own)
    return found


# ---- a row for each operator ---------------------------------------------------------------------


def operators_of(test: NodeTest) -> set[str]:
    """The operators of the test's model, as the frontend names them."""
    nodes = onnx.load_from_string(test.model).graph.node
    plain = ("", "ai.onnx")
    return {n.op_type if n.domain in plain else f"{n.domain}:{n.op_type}" for n in nodes}


def conformance(tests: Iterable[NodeTest]) -> dict[str, list[Taken]]:
    """For each operator that we translate the shortest of its tests; none where there is none."""
    found: dict[str, list[Taken]] = {name: [] for name in onnx_importers()}
    left_out = skips()
    for test in tests:
        own = operators_of(test) & found.keys()
        item = taken(test) if own and test.name not in left_out else ""
        if isinstance(item, Taken):
            for name in own:
                found[name].append(item)
    return {name: sorted(items, key=_length)[:1] for name, items in found.items()}


def all_tests() -> list[NodeTest]:
    """Those of the package and ours."""
    from own_cases import own_cases

    return [*collected(), *own_cases()]


def _length(item: Taken) -> tuple[bool, int, int, str]:
    """What is computed comes before what is bound, the short before the long."""
    entry = item.module.entry
    assert isinstance(entry, Function)
    return not entry.params, item.is_bound, len(entry.body), item.test.name


# ---- the command -------------------------------------------------------------------------------


def listed(path: Path) -> dict[str, str]:
    """A committed list."""
    rows = (line.split(": ", 1) for line in path.read_text(encoding="utf-8").splitlines())
    return {row[0]: row[1] for row in rows}


def skips() -> dict[str, str]:
    """Of each test that is left out the reason."""
    return listed(SKIPS)


def _update(skipped: dict[str, str]) -> None:
    """Writes both lists: what is left out, and the test that stands for each operator."""
    _write(SKIPS, skipped)
    found = conformance(all_tests())
    _write(ROWS, {name: items[0].test.name for name, items in found.items() if items})


def _write(path: Path, rows: dict[str, str]) -> None:
    path.write_text("".join(sorted(f"{a}: {b}\n" for a, b in rows.items())), encoding="utf-8")


def on_board(board: str) -> int:
    """Runs the rows of all operators on `board`; 1 where one fails or is missing."""
    rows = conformance(all_tests())
    items = list({item.test.name: item for found in rows.values() for item in found}.values())
    missing = sorted(name for name, found in rows.items() if not found)
    failures = {n: why for group in grouped(items) for n, why in in_c(group, board).items() if why}
    for name, why in failures.items():
        print(f"FAILED {name}: {why[:300]}")
    print(
        f"{board}: {len(rows) - len(missing)} of {len(rows)} operators in {len(items)} tests, "
        f"{len(failures)} failed; without a test: {', '.join(missing) or 'none'}"
    )
    return 1 if failures or missing else 0


def main(arguments: Sequence[str]) -> int:
    """Runs the tests whose names begin so; 1 where one fails."""
    warnings.simplefilter("ignore")
    if "--board" in arguments:
        return on_board(arguments[list(arguments).index("--board") + 1])
    prefixes = tuple(f"test_{word}" for word in arguments if not word.startswith("-"))
    tests = [test for test in collected() if not prefixes or test.name.startswith(prefixes)]
    found = {test.name: taken(test) for test in tests}
    items = [item for item in found.values() if isinstance(item, Taken)]
    skipped = {name: why for name, why in found.items() if isinstance(why, str)}
    failures = {item.test.name: why for item in items if (why := by_reference(item))}
    done = 0
    for group in grouped(items) if "--no-c" not in arguments else ():
        try:
            failures |= {name: why for name, why in in_c(group).items() if why}
        except FirmwrightError as error:
            failures |= dict.fromkeys((item.test.name for item in group), str(error))
        done += len(group)
        print(f"{done} of {len(items)}", file=sys.stderr, flush=True)
    if "--update" in arguments and not prefixes:
        _update(skipped)
    for name, why in failures.items():
        print(f"FAILED {name}: {why[:300]}")
    passed = [item for item in items if item.test.name not in failures]
    count = Counter("bound" if item.is_bound else "passed" for item in passed)
    print(
        f"{len(tests)} tests: {count['passed']} passed, {count['bound']} with operands bound, "
        f"{len(skipped)} skipped, {len(failures)} failed"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
