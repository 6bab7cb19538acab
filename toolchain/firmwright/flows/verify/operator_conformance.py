"""Runs the operators' conformance cases on a board; compares results with numpy."""

import logging
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Unpack

import numpy as np

from firmwright.base.errors import UsageError
from firmwright.base.grouping import group_pairs
from firmwright.base.quant import Quantization
from firmwright.base.text_sections import read_sections
from firmwright.boards import Board, load_board
from firmwright.conformance.case_tables import (
    CaseTensor,
    ConformanceCase,
    conformance_cases,
)
from firmwright.flows.board.model_session import SessionOpener, open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.given_options import GivenOptions
from firmwright.flows.model.model import Model
from firmwright.flows.samples.reference_outputs import run_numpy_reference
from firmwright.flows.samples.sample_batches import Tensors
from firmwright.frontends.tflite.decoded_model import (
    NO_TENSOR,
    RawModel,
    RawNode,
    RawSubgraph,
    RawTensor,
)
from firmwright.frontends.tflite.importer import import_model
from firmwright.frontends.tflite.operators.registry import imported_operators
from firmwright.ir.core import Span
from firmwright.ir.module import IRModule
from firmwright.ops.registry import op_table
from firmwright.oracle.compare import WHOLE_MODEL, Difference, Tolerance, compare_tensor
from firmwright.oracle.random_samples import SampleInput, make_sample
from firmwright.pipeline import Compilation
from firmwright.tflite_schema import OPTIONS_OF_OPERATOR, TABLES

log = logging.getLogger(__name__)
INT32_RANGE = (-(1 << 20), 1 << 20)
"""The range of 32-bit inputs, which are quantized sums; larger values do not occur."""
HOST_BYTES = 4 << 20
CASES_PER_IMAGE = 64
FIRST_SAMPLES = (3, 1, 2, 0)
"""The first sample numbers: even two samples include a random and an extreme one."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """A case with its first difference, TFLite name (`builtin`) and tested type."""

    op: str
    case: str
    first: Difference | None
    builtin: str = ""
    dtype: str = ""

    @property
    def passed(self) -> bool:
        return self.first is None


@dataclass(frozen=True, slots=True)
class OperatorTestResult:
    """The results of cases in `images` firmware images; `skipped` are too large."""

    board: str
    numerics: str
    samples: int
    images: int
    results: tuple[CaseResult, ...]
    skipped: tuple[tuple[str, str], ...]

    @property
    def failed(self) -> tuple[CaseResult, ...]:
        return tuple(result for result in self.results if not result.passed)


@dataclass(frozen=True, slots=True)
class NamedCase:
    """A case with the name of its operator."""

    op: str
    case: ConformanceCase


def run_operator_test(
    board_name: str,
    *,
    ops: Sequence[str] = (),
    sample_count: int = 4,
    one_each: bool = False,
    open_with: SessionOpener = open_session,
    **given: Unpack[GivenOptions],
) -> OperatorTestResult:
    """Run the cases of `ops` (or all) on a board, or `one_each`.

    `given` are compile options.
    """
    board = load_board(board_name, given.get("board_dirs", ()))
    unknown = sorted(set(ops) - set(op_table()))
    if unknown:
        hint = f"use one of {', '.join(op_table())}."
        raise UsageError(f"there is no operator {unknown[0]!r}.", hint=hint)
    cases = cases_to_run(board_name, ops or list(op_table()), one_each=one_each)
    budget = budget_bytes(board)
    fitting: list[NamedCase] = []
    skipped: list[tuple[str, str]] = []
    for item in cases:
        if _tensor_bytes(item.case) <= budget:
            fitting.append(item)
        else:
            skipped.append((item.op, item.case.name))
    groups = list(grouped(fitting, budget))
    results: list[CaseResult] = []
    for number, group in enumerate(groups):
        log.info("firmware %d of %d: %d cases", number + 1, len(groups), len(group))
        results += _run(group, board_name, sample_count, open_with, given)
    return OperatorTestResult(
        board=board.name,
        numerics=str(given.get("numerics", "litert")),
        samples=sample_count,
        images=len(groups),
        results=tuple(results),
        skipped=tuple(skipped),
    )


def cases_to_run(board: str, ops: Sequence[str], *, one_each: bool) -> list[NamedCase]:
    cases = []
    for name in op_table():
        if name not in ops:
            continue
        own = [NamedCase(name, case) for case in conformance_cases(name)]
        chosen = zlib.crc32(f"{board} {name}".encode()) % max(len(own), 1)
        cases += own[chosen : chosen + 1] if one_each else own
    return cases


def budget_bytes(board: Board) -> int:
    """Return the tensor bytes for one firmware; all inputs and outputs live at once."""
    if board.is_host:
        return HOST_BYTES
    pool = max((p.size_bytes or 0 for p in board.pools()), default=0)
    flash = board.flash.size_bytes
    return min(pool * 3 // 4, flash // 8)


def grouped(cases: Sequence[NamedCase], budget: int) -> Iterator[list[NamedCase]]:
    """Yield groups of consecutive cases whose tensors fit into the budget together."""
    group: list[NamedCase] = []
    group_bytes = 0
    for item in cases:
        size = _tensor_bytes(item.case)
        if group and (group_bytes + size > budget or len(group) == CASES_PER_IMAGE):
            yield group
            group, group_bytes = [], 0
        group.append(item)
        group_bytes += size
    if group:
        yield group


def _tensor_bytes(case: ConformanceCase) -> int:
    total = 0
    for tensor in (*case.inputs, *case.outputs):
        if tensor is None:
            continue
        if tensor.data is None:
            total += int(np.prod(tensor.shape)) * np.dtype(tensor.dtype).itemsize
        else:
            total += tensor.data.nbytes
    return total


def _run(
    group: Sequence[NamedCase],
    board: str,
    sample_count: int,
    open_with: SessionOpener,
    options: GivenOptions,
) -> list[CaseResult]:
    numbers = [*FIRST_SAMPLES, *range(len(FIRST_SAMPLES), sample_count)][:sample_count]
    wanted, seed = case_inputs(group), case_seed(group)
    inputs = [make_sample(wanted, number, seed) for number in numbers]
    compiled = compile_cases(cases_module(group), board, options)
    expected = run_numpy_reference(compiled.imported, inputs).outputs
    with open_with(compiled) as session:
        differences = first_differences(expected, session.run_all(inputs))
    results: list[CaseResult] = []
    for index, item in enumerate(group):
        case = item.case
        result = CaseResult(
            op=item.op,
            case=case.name,
            first=differences.get(index),
            builtin=case.builtin,
            dtype=dtype_of(case),
        )
        results.append(result)
    return results


def compile_cases(module: IRModule, board: str, options: GivenOptions) -> Compilation:
    # All inputs and outputs are live at the same time, so a search would not help.
    given: GivenOptions = {"planner": "greedy_by_size", **options}
    return compile_for(Model(module), board, **given)


def first_differences(
    expected: Sequence[Tensors],
    actual: Sequence[Tensors],
    tolerance: Tolerance = WHOLE_MODEL,
) -> dict[int, Difference]:
    """Return the first difference of each case with a wrong output, by case index."""
    differences: dict[int, Difference] = {}
    for number, (reference, outputs) in enumerate(zip(expected, actual, strict=True)):
        for name, values in reference.items():
            first = compare_tensor(number, name, values, outputs[name], tolerance).first
            if first is not None:
                differences.setdefault(int(name.split(".")[0]), first)
    return differences


def dtype_of(case: ConformanceCase) -> str:
    """Return the element type that a case tests: that of data, not of indices."""
    kinds: list[str] = []
    for tensor in case.inputs:
        if tensor is not None and tensor.has_samples:
            kinds.append(tensor.dtype)
    data = [kind for kind in kinds if kind not in ("bool", "int32")]
    own = case.outputs[0].dtype
    if own in ("bool", "int32", "int64") and kinds:
        return data[0] if data else kinds[0]
    return own


def case_seed(group: Sequence[NamedCase]) -> int:
    names = [f"{item.op} {item.case.name}" for item in group]
    return zlib.crc32(" ".join(names).encode())


def cases_module(group: Sequence[NamedCase]) -> IRModule:
    """Return a module that runs every case of `group` without shared tensors."""
    tensors: list[RawTensor] = []
    nodes = [_node(index, item.case, tensors) for index, item in enumerate(group)]
    inputs: list[int] = []
    outputs: list[int] = []
    for tensor in tensors:
        is_variable = tensor.buffer is None and not tensor.is_variable
        if ".x" in tensor.name and is_variable:
            inputs.append(tensor.index)
        if ".y" in tensor.name:
            outputs.append(tensor.index)
    graph = RawSubgraph(
        "cases", tuple(tensors), tuple(inputs), tuple(outputs), tuple(nodes)
    )
    raw = RawModel("cases", "", (graph,))
    return import_model(raw, "cases", b"", op_table())


def _node(index: int, case: ConformanceCase, tensors: list[RawTensor]) -> RawNode:
    def add(name: str, tensor: CaseTensor | None) -> int:
        if tensor is None:
            return NO_TENSOR
        tensors.append(_tensor(len(tensors), name, tensor))
        return len(tensors) - 1

    inputs = [add(f"{index}.x{k}", tensor) for k, tensor in enumerate(case.inputs)]
    outputs = [add(f"{index}.y{k}", tensor) for k, tensor in enumerate(case.outputs)]
    span = Span(case.name, 0, index, f"{index}.y0")
    fields = TABLES.get(OPTIONS_OF_OPERATOR.get(case.builtin, ""), {})
    defaults = {name: field.default_value for name, field in fields.items()}
    options = defaults | dict(case.options)
    return RawNode(case.builtin, 1, tuple(inputs), tuple(outputs), options, span)


def _tensor(index: int, name: str, tensor: CaseTensor) -> RawTensor:
    quantization = None
    if tensor.scales:
        axis = tensor.axis if len(tensor.scales) > 1 else None
        # Single precision, as files store them.
        scales = tuple(float(np.float32(scale)) for scale in tensor.scales)
        quantization = Quantization(scales, tensor.zero_points, axis)
    data = None if tensor.data is None else tensor.data.tobytes()
    return RawTensor(
        index, name, tensor.shape, tensor.dtype, quantization, data, tensor.is_state
    )


def case_inputs(group: Sequence[NamedCase]) -> list[SampleInput]:
    inputs = []
    for index, item in enumerate(group):
        for position, tensor in enumerate(item.case.inputs):
            if tensor is not None and tensor.has_samples:
                name = f"{index}.x{position}"
                zero_point = (tensor.zero_points or (0,))[0]
                limits = tensor.value_range or None
                if limits is None and tensor.dtype == "int32":
                    limits = INT32_RANGE
                dtype = np.dtype(tensor.dtype)
                made = SampleInput(name, tensor.shape, dtype, zero_point, limits)
                inputs.append(made)
    return inputs


DTYPES = ("int8", "int16", "int32", "float32", "bool")
Status = Literal["passed", "failed", "untested", "unsupported"]


@dataclass(frozen=True, slots=True)
class ConformanceCell:
    """One operator with one element type; `untested` is supported without a case."""

    operator: str
    dtype: str
    cases: int
    passed: int
    status: Status


def _tflm_types() -> Mapping[str, frozenset[str]]:
    """Return the element types that the reference kernels accept in practice."""
    types_by_operator: dict[str, frozenset[str]] = {}
    kinds: frozenset[str] = frozenset()
    for line in read_sections(__file__, ".txt")["types"].splitlines():
        if line.endswith(":"):
            kinds = frozenset(line[:-1].split())
        else:
            types_by_operator.update(dict.fromkeys(line.split(), kinds))
    return types_by_operator


def build_matrix(test: OperatorTestResult) -> list[ConformanceCell]:
    """Count the cases that ran and passed for each operator and element type."""
    results = (((case.builtin, case.dtype), case.passed) for case in test.results)
    counts = group_pairs(results)
    accepted, ops = _tflm_types(), op_table()
    cells = []
    for name, op in imported_operators().items():
        for kind in DTYPES:
            ran = counts.get((name, kind), [])
            status: Status = "untested" if kind in ops[op].dtypes else "unsupported"
            if ran:
                status = "passed" if all(ran) else "failed"
            elif kind not in accepted.get(name, ()):
                continue
            cells.append(ConformanceCell(name, kind, len(ran), sum(ran), status))
    return cells
