"""The node tests of the package `onnx`: imported, compiled to C, run, and compared.

    PYTHONPATH=toolchain python -m tests.onnx.backend [--update] [--no-c] [PREFIX...]
    PYTHONPATH=toolchain python -m tests.onnx.backend --board mps2-an386

The second form runs one test of each supported operator on the board.

A test passes if the generated C gives the expected outputs within the test's tolerance.
If an operator needs a constant operand, such as a shape, and the test has it as an
input, the input is fixed to the test's data (`--fix-input`); these tests are counted
separately. skips.txt lists unsupported tests with the compiler's reason, rows.txt the
representative test of each supported operator. --update writes both.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

import onnx
from firmwright.base.counted_outputs import without_counts
from firmwright.base.dtypes import STORAGE_DTYPES
from firmwright.base.errors import FirmwrightError, UnsupportedError
from firmwright.boards import load_board
from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.frontends.onnx import ModelOverrides, import_onnx, preprocess_model
from firmwright.frontends.onnx.operators.registry import onnx_importers
from firmwright.ir.core import Constant
from firmwright.ir.graph.attributes.control import IfAttrs, WhileAttrs
from firmwright.ir.graph.evaluate import evaluate_graph
from firmwright.ir.graph.nodes import Call, Function, State, Value
from firmwright.ir.module import IRModule
from firmwright.ir.settings import NumericsProfile
from firmwright.ops.registry import op_table
from firmwright.oracle.compare import compare_length, cut_to_reference
from firmwright.pipeline import Compilation, Options, configure_module
from firmwright.schedules.registry import INTRINSICS
from onnx import TensorProto, numpy_helper
from tests.onnx.onnx_models import GRAPH_PASSES

Array = NDArray[Any]
AS_ONNX_RUNTIME = frozenset(
    {
        "test_maxunpool_export_with_output_shape",
        "test_resize_downsample_scales_cubic_align_corners",
        "test_resize_downsample_scales_linear_align_corners",
    }
)
"""Tests in which ONNX Runtime, our reference, gives other values.

It divides by the whole size of a resized output, the package by the size before it is
rounded down. It takes indices of MaxUnpool as places in the output, the package as
places in the shape without `output_shape`.
"""
ROUNDED_ZEROS = frozenset({"test_dft_inverse", "test_dft_inverse_opset19"})
"""Tests with values that only the rounding of a fast transform makes other than 0."""
STORED = frozenset(dtype.name for dtype in STORAGE_DTYPES)
"""Element types whose numbers numpy does not compare with a tolerance."""
LAST_PLACES = {"float16": 2.0**-9, "bfloat16": 2.0**-6}
"""The relative size of two places, which is the least tolerance of these types.

The package rounds after each step of a computation, ONNX Runtime and we at its end.
"""
SKIPS = Path(__file__).parent / "skips.txt"
ROWS = Path(__file__).parent / "rows.txt"
TESTS_PER_IMAGE = 64
CALLS_PER_IMAGE = 150
_NODE_TESTS = "onnx.backend.test.case.node"
BEFORE_LOWERING = "rematerialize"
"""The last pass over graphs."""


@dataclass(frozen=True, slots=True)
class NodeTest:
    """One test: model file, inputs and expected outputs by position, and tolerance."""

    name: str
    model: bytes
    input_names: tuple[str, ...]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    relative: float
    absolute: float


@dataclass(frozen=True, slots=True)
class SupportedTest:
    """A supported test as a module; `is_bound` if some inputs are constants."""

    test: NodeTest
    module: IRModule
    is_bound: bool

    @property
    def sample(self) -> dict[str, Array]:
        values = dict(zip(self.test.input_names, self.test.inputs, strict=True))
        entry = self.module.entry
        assert isinstance(entry, Function)
        return {value.name: np.asarray(values[value.name]) for value in entry.params}


class _AnyOf(str):
    """A string equal to several operators, for the package's test selection."""

    __slots__ = ("ops",)

    def __new__(cls, ops: Iterable[str]) -> _AnyOf:
        text = super().__new__(cls, " ".join(ops))
        text.ops = frozenset(ops)  # type: ignore[attr-defined]  # a slot
        return text

    def __ne__(self, other: object) -> bool:
        return other not in self.ops  # type: ignore[attr-defined]  # a slot

    __hash__ = str.__hash__


def collect_tests(ops: Iterable[str] = ()) -> list[NodeTest]:
    """Return the tests of these operators, by default of all.

    The package creates its tests when their modules are imported, so these are unloaded
    first.
    """
    for name in [name for name in sys.modules if name.startswith(f"{_NODE_TESTS}.")]:
        del sys.modules[name]
    sys.modules.pop(_NODE_TESTS, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        cases = collect_testcases(_AnyOf(ops) if ops else None)

    def array(item: Any) -> Any:
        """Some tests hold a message where all others hold an array."""
        return numpy_helper.to_array(item) if isinstance(item, TensorProto) else item

    def expected(case: Any) -> Iterable[Any]:
        inputs, outputs = case.data_sets[0]
        if case.name not in AS_ONNX_RUNTIME:
            return map(array, outputs)
        session = onnxruntime.InferenceSession(case.model.SerializeToString())
        names = [item.name for item in case.model.graph.input]
        return iter(session.run(None, dict(zip(names, inputs, strict=True))))

    return [
        NodeTest(
            case.name,
            case.model.SerializeToString(),
            tuple(item.name for item in case.model.graph.input),
            tuple(map(array, case.data_sets[0][0])),
            tuple(expected(case)),
            case.rtol if case.rtol is not None else 1e-3,
            _absolute_tolerance(case),
        )
        for case in cases
    ]


def _absolute_tolerance(case: Any) -> float:
    if case.name in ROUNDED_ZEROS:
        return 1e-6
    return 1e-7 if case.atol is None else float(case.atol)


# ---- one test ------------------------------------------------------------------------


def _imported(test: NodeTest, bound: Iterable[int]) -> IRModule:
    rows = list(enumerate(zip(test.input_names, test.inputs, strict=True)))
    overrides = ModelOverrides(
        {
            n: np.shape(x)
            for k, (n, x) in rows
            if k not in bound and isinstance(x, np.ndarray)
        },
        {n: np.asarray(x) for k, (n, x) in rows if k in bound},
    )
    data = preprocess_model(test.model, test.name, overrides)
    return import_onnx(data, test.name, "test", op_table())


def _wants_constants(error: UnsupportedError) -> bool:
    return any("constant" in item.why for item in error.items)


def import_test(test: NodeTest) -> SupportedTest | str:
    """Return the test as a module, or the reason why it is not supported."""
    arrays = [
        k for k, x in enumerate(test.inputs) if isinstance(x, np.ndarray | np.generic)
    ]
    operands = [k for k in arrays if k]
    whole = [k for k in operands if test.inputs[k].dtype.kind in "iub"]
    short = [k for k in operands if test.inputs[k].ndim < 2]
    # Finally the first operand too, such as the shape of a fill.
    line = [k for k in arrays if test.inputs[k].ndim < 2]
    for bound in ((), whole, sorted({*whole, *short}), sorted({*whole, *line})):
        try:
            return SupportedTest(test, _imported(test, bound), bool(bound))
        except UnsupportedError as error:
            reason = "; ".join(dict.fromkeys(f"{i.op}: {i.why}" for i in error.items))
            if not _wants_constants(error):
                return reason
        except FirmwrightError as error:
            return str(error)
    return reason


def describe_mismatch(test: NodeTest, pairs: Iterable[tuple[Array, Array]]) -> str:
    """Describe how results differ from the expected ones, or return ""."""
    for got, want in pairs:
        if (got.dtype, got.shape) != (want.dtype, want.shape):
            return (
                f"{got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
            )
        relative = max(test.relative, LAST_PLACES.get(want.dtype.name, 0.0))
        if got.dtype.name in STORED:
            got, want = got.astype(np.float32), want.astype(np.float32)
        try:
            np.testing.assert_allclose(got, want, rtol=relative, atol=test.absolute)
        except AssertionError as error:
            return " ".join(str(error).split())
    return ""


def reference_mismatch(item: SupportedTest) -> str:
    """Describe the mismatch of the operators' numpy references."""
    entry = item.module.entry
    assert isinstance(entry, Function)
    values = evaluate_graph(item.module, item.sample, op_table(), INTRINSICS)
    return describe_mismatch(item.test, used_parts(item.test, entry, values))


def used_parts(
    test: NodeTest, entry: Function, values: Mapping[str, Array], prefix: str = ""
) -> list[tuple[Array, Array]]:
    """Return the results with the expected ones, without elements not in use.

    A result is empty if its count differs from the length in the test.
    """
    names = [value.name for value in entry.results]
    counted = [name for name in names if f"{name}_count" in names]
    expected = list(map(np.asarray, test.outputs))
    if len(expected) > len(names):
        # The firmware omits outputs without elements.
        expected = [array for array in expected if array.size]
    wanted = zip(without_counts(names), expected, strict=True)
    parts: list[tuple[Array, Array]] = []
    for name, want in wanted:
        array = values[f"{prefix}{name}"]
        if name in counted:
            count = values[f"{prefix}{name}_count"]
            is_same = not compare_length(0, name, want, array, count).mismatches
            array = cut_to_reference(array, want) if is_same else array[:0]
        parts.append((array, want))
    return parts


# ---- many in one image ---------------------------------------------------------------


def merge_modules(
    modules: Sequence[IRModule], numerics: NumericsProfile = "onnx"
) -> IRModule:
    """Return one module with all graphs; names get a number as prefix."""
    constants: dict[str, Constant] = {}
    functions: dict[str, Function] = {}
    parts: list[Function] = []
    for number, module in enumerate(modules):
        entry = module.entry
        assert isinstance(entry, Function)
        parts.append(_with_prefix(entry, number))
        for name, function in module.functions.items():
            if function is not entry:
                assert isinstance(function, Function)
                functions[f"{number}.{name}"] = _with_prefix(function, number)
        constants |= {
            f"{number}.{name}": replace(constant, name=f"{number}.{name}")
            for name, constant in module.constants.items()
        }
    main = Function(
        "main",
        tuple(value for part in parts for value in part.params),
        tuple(call for part in parts for call in part.body),
        tuple(value for part in parts for value in part.results),
        state=tuple(state for part in parts for state in part.state),
    )
    functions["main"] = main
    module = IRModule("cases", functions, constants, entry_name="main")
    return module.with_numerics(numerics)


def _with_prefix(function: Function, number: int) -> Function:
    """Return the function with the number before all names in it."""

    def moved(value: Value) -> Value:
        constant = None if value.constant is None else f"{number}.{value.constant}"
        return replace(value, name=f"{number}.{value.name}", constant=constant)

    def moved_call(call: Call) -> Call:
        inputs = tuple(None if v is None else moved(v) for v in call.inputs)
        attrs = call.attrs
        match attrs:
            case IfAttrs(then=then, else_=other):
                attrs = IfAttrs(then=f"{number}.{then}", else_=f"{number}.{other}")
            case WhileAttrs(cond=cond, body=body):
                attrs = WhileAttrs(cond=f"{number}.{cond}", body=f"{number}.{body}")
        outputs = tuple(map(moved, call.outputs))
        return replace(call, inputs=inputs, outputs=outputs, attrs=attrs)

    def moved_state(state: State) -> State:
        initial = f"{number}.{state.initial}"
        return State(moved(state.value), moved(state.next), initial)

    return replace(
        function,
        name=f"{number}.{function.name}",
        params=tuple(map(moved, function.params)),
        body=tuple(map(moved_call, function.body)),
        results=tuple(map(moved, function.results)),
        state=tuple(map(moved_state, function.state)),
    )


def run_merged(
    modules: Sequence[IRModule],
    batch: Sequence[Sequence[Mapping[str, Any]]],
    board: str,
    numerics: NumericsProfile = "onnx",
) -> tuple[dict[str, Array], ...]:
    """Run the modules as one firmware on samples that hold all their inputs."""
    feeds = [
        {f"{k}.{name}": x for k, part in enumerate(sample) for name, x in part.items()}
        for sample in batch
    ]
    compiled = compile_module(merge_modules(modules, numerics), board)
    with open_session(compiled, in_process=board == "host") as session:
        return session.run_all(feeds)


def compile_module(module: IRModule, board: str) -> Compilation:
    """Compile without a search for a run order, which cannot improve these."""
    options = {"board": board, "planner": "greedy_by_size", "optimize": "speed"}
    module = configure_module(module, load_board(board), Options(**options))
    for step in GRAPH_PASSES:
        module = step(module)
    return compile_for(module.with_stage(BEFORE_LOWERING), **options)


def group_tests(items: Sequence[SupportedTest]) -> Iterator[list[SupportedTest]]:
    """Yield groups of tests that form one image, in order."""
    group: list[SupportedTest] = []
    calls = 0
    for item in items:
        entry = item.module.entry
        assert isinstance(entry, Function)
        if group and (
            calls + len(entry.body) > CALLS_PER_IMAGE or len(group) == TESTS_PER_IMAGE
        ):
            yield group
            group, calls = [], 0
        group.append(item)
        calls += len(entry.body)
    if group:
        yield group


def compiled_mismatches(
    items: Sequence[SupportedTest], board: str = "host"
) -> dict[str, str]:
    """Return the mismatches of all tests in one compiled image, by test name."""
    compiled = compile_module(merge_modules([item.module for item in items]), board)
    sample = {
        f"{k}.{name}": array
        for k, item in enumerate(items)
        for name, array in item.sample.items()
    }
    with open_session(compiled, in_process=board == "host") as session:
        (results,) = session.run_all([sample])
    errors = {}
    for number, item in enumerate(items):
        entry = item.module.entry
        assert isinstance(entry, Function)
        own = used_parts(item.test, entry, results, f"{number}.")
        errors[item.test.name] = describe_mismatch(item.test, own)
    return errors


# ---- a row for each operator ---------------------------------------------------------


def operators_of(test: NodeTest) -> set[str]:
    """Return the operators of the test's model by their names in the frontend."""
    nodes = onnx.load_from_string(test.model).graph.node
    plain = ("", "ai.onnx")
    return {
        n.op_type if n.domain in plain else f"{n.domain}:{n.op_type}" for n in nodes
    }


def conformance(tests: Iterable[NodeTest]) -> dict[str, list[SupportedTest]]:
    """Return the tests of each supported operator, the shortest first."""
    by_operator: dict[str, list[SupportedTest]] = {
        name: [] for name in onnx_importers()
    }
    left_out = read_skips()
    for test in tests:
        own = operators_of(test) & by_operator.keys()
        item = import_test(test) if own and test.name not in left_out else ""
        if isinstance(item, SupportedTest):
            for name in own:
                by_operator[name].append(item)
    return {name: sorted(items, key=_length)[:1] for name, items in by_operator.items()}


def all_tests() -> list[NodeTest]:
    """Return the tests of the package and our own."""
    from tests.onnx.own_cases import own_cases

    return [*collect_tests(), *own_cases()]


def _length(item: SupportedTest) -> tuple[bool, int, int, str]:
    """Order tests without fixed inputs first, then by size."""
    entry = item.module.entry
    assert isinstance(entry, Function)
    return not entry.params, item.is_bound, len(entry.body), item.test.name


# ---- the command ---------------------------------------------------------------------


def read_list(path: Path) -> dict[str, str]:
    """Read a committed list."""
    rows = (
        line.split(": ", 1) for line in path.read_text(encoding="utf-8").splitlines()
    )
    return {row[0]: row[1] for row in rows}


def read_skips() -> dict[str, str]:
    """Return the reason of each skipped test."""
    return read_list(SKIPS)


def _update(skipped: dict[str, str]) -> None:
    """Write both lists: skipped tests, and the representative test of each operator."""
    _write(SKIPS, skipped)
    by_operator = conformance(all_tests())
    _write(
        ROWS, {name: items[0].test.name for name, items in by_operator.items() if items}
    )


def _write(path: Path, rows: dict[str, str]) -> None:
    path.write_text(
        "".join(sorted(f"{a}: {b}\n" for a, b in rows.items())), encoding="utf-8"
    )


def on_board(board: str) -> int:
    """Run the representative tests on `board`; return 1 if one fails or is missing."""
    rows = conformance(all_tests())
    items = list(
        {
            item.test.name: item for tests_of in rows.values() for item in tests_of
        }.values()
    )
    missing = sorted(name for name, tests_of in rows.items() if not tests_of)
    failures = {
        n: why
        for group in group_tests(items)
        for n, why in compiled_mismatches(group, board).items()
        if why
    }
    for name, why in failures.items():
        print(f"FAILED {name}: {why[:300]}")
    print(
        f"{board}: {len(rows) - len(missing)} of {len(rows)} operators in {len(items)} tests, "
        f"{len(failures)} failed; without a test: {', '.join(missing) or 'none'}"
    )
    return 1 if failures or missing else 0


def main(arguments: Sequence[str]) -> int:
    """Run the tests whose names have one of the prefixes; return 1 if one fails."""
    warnings.simplefilter("ignore")
    if "--board" in arguments:
        return on_board(arguments[list(arguments).index("--board") + 1])
    prefixes = tuple(f"test_{word}" for word in arguments if not word.startswith("-"))
    tests = [
        test
        for test in collect_tests()
        if not prefixes or test.name.startswith(prefixes)
    ]
    results = {test.name: import_test(test) for test in tests}
    items = [item for item in results.values() if isinstance(item, SupportedTest)]
    skipped = {name: why for name, why in results.items() if isinstance(why, str)}
    failures = {
        item.test.name: why for item in items if (why := reference_mismatch(item))
    }
    done = 0
    for group in group_tests(items) if "--no-c" not in arguments else ():
        try:
            failures |= {
                name: why for name, why in compiled_mismatches(group).items() if why
            }
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
