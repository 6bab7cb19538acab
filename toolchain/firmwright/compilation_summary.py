"""The summary of a compilation, as in `compile --json`, metadata.json and reports.

Sizes and offsets are in bytes. A live range [first, end) counts the steps of the AOT
main.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from firmwright.base.display_names import display_name
from firmwright.base.json_input import Json, JsonObject, as_object

NO_OPERATOR = -1
"""The operator index of a step without operator, such as a moved row or a condition."""


@dataclass(frozen=True, slots=True)
class TensorSummary:
    """An input, output or state tensor; `field` is its member of the C struct."""

    name: str
    field: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    scales: tuple[float, ...] | None
    zero_points: tuple[int, ...] | None
    pool: str | None
    offset: int | None


@dataclass(frozen=True, slots=True)
class IoSummary:
    """The tensors of the interface.

    Outputs belong to the inputs of `pipeline_runs` runs before. `axis` is the name of
    the input with the size of a bounded axis, and its bounds.
    """

    mode: str
    preserve_input: bool
    stream_input_rows: bool
    inputs: tuple[TensorSummary, ...]
    outputs: tuple[TensorSummary, ...]
    state: tuple[TensorSummary, ...] = ()
    pipeline_runs: int = 0
    axis: tuple[str, int, int] | None = None


@dataclass(frozen=True, slots=True)
class PoolSummary:
    """A pool and its planned bytes; `scope` is set for pools of constants only."""

    bytes: int
    limit_bytes: int | None
    access: str
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class ConstantSummary:
    """A constant in the generated code; equal constants have one entry."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    sha256: str
    pool: str


@dataclass(frozen=True, slots=True)
class OperatorSummary:
    """An operator with code, the C function `kernel`; `index` is that of the model.

    `shape` is that of the first output.
    """

    index: int
    name: str
    kind: str
    shape: tuple[int, ...]
    macs: int
    schedule: str
    kernel: str
    span: str
    tensor: str

    @property
    def label(self) -> str:
        """The name for people."""
        return display_name(self.name, self.kind, self.index, self.shape)


@dataclass(frozen=True, slots=True)
class RejectedOperator:
    """An operator that a backend leaves to the core."""

    kind: str
    tensor: str
    target: str
    reason: str

    def __str__(self) -> str:
        return f"{self.kind} {self.tensor}: {self.reason}"


@dataclass(frozen=True, slots=True)
class PlannedBuffer:
    """A buffer of the memory plan with its pool, offset and live ranges."""

    name: str
    kind: str
    pool: str
    offset: int
    size_bytes: int
    alignment: int
    live: tuple[tuple[int, int], ...]

    @property
    def end(self) -> int:
        """The offset of the first byte after the buffer."""
        return self.offset + self.size_bytes

    def lives_at(self, time: int) -> bool:
        return any(first <= time < end for first, end in self.live)


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """The memory plan, with the operator of each step, or NO_OPERATOR."""

    planner: str
    operator_by_time: tuple[int, ...]
    buffers: tuple[PlannedBuffer, ...]


@dataclass(frozen=True, slots=True)
class CompilerSummary:
    """The C compiler for which sources are tuned: its command and the board's flags."""

    tool: str = ""
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CompilationSummary:
    """The results of compiling one model; `options` are those that are not defaults."""

    schema: int
    abi: int
    tool_version: str
    model: str
    model_id: str
    source_sha256: str
    board: str
    compiler: CompilerSummary
    target: Mapping[str, str]
    numerics: str
    options: JsonObject
    io: IoSummary
    workspace_bytes: int
    lower_bound_bytes: int
    optimality_gap_bytes: int
    scratch_bytes: int
    pools: Mapping[str, PoolSummary]
    constants_bytes: int
    constants: tuple[ConstantSummary, ...]
    operators: tuple[OperatorSummary, ...]
    operator_count: int
    plan: PlanSummary | None
    rejections: tuple[RejectedOperator, ...] = ()
    compressed_bytes: int = 0

    def operator(self, index: int) -> OperatorSummary | None:
        """Return the operator with that number in the model; None if it has no code."""
        for item in self.operators:
            if item.index == index:
                return item
        return None

    def describe_rejection(self, item: RejectedOperator) -> str:
        """Return operator and reason, with the operator's name for people."""
        for operator in self.operators:
            is_long = operator.label != operator.name
            if is_long and (operator.kind, operator.tensor) == (item.kind, item.tensor):
                return f"{operator.label}: {item.reason}"
        return str(item)

    def to_json(self) -> dict[str, Json]:
        """Return plain values with the keys of `compile --json`."""
        data = _to_plain_dict(self)
        for name in ("rejections", "compressed_bytes"):
            if not data[name]:
                del data[name]
        io = dict(as_object(data["io"]))
        for name in ("state", "pipeline_runs", "axis"):
            if not io[name]:
                del io[name]
        return data | {"io": io}


@dataclass(frozen=True, slots=True)
class MemoryTradeoff:
    """The costs of a program with row-streamed `segments` (first, end) of operators."""

    workspace_bytes: int
    instructions: int
    segments: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class BundleSummary:
    """The results of compiling several models for one firmware.

    `run_order` holds the names of the models.
    """

    schema: int
    model: str
    model_id: str
    board: str
    target: Mapping[str, str]
    models: tuple[CompilationSummary, ...]
    run_order: tuple[str, ...]
    concurrent: bool
    workspace_bytes: int
    lower_bound_bytes: int
    pools: Mapping[str, PoolSummary]
    constants_bytes: int

    def to_json(self) -> dict[str, Json]:
        """Return plain values with the keys of `compile --json`."""
        models = [model.to_json() for model in self.models]
        return _to_plain_dict(replace(self, models=())) | {"models": models}


def _to_plain_dict(summary: CompilationSummary | BundleSummary) -> dict[str, Json]:
    data = {name: _plain(value) for name, value in asdict(summary).items()}
    pools: dict[str, JsonObject] = {}
    for name, pool in as_object(data["pools"]).items():
        facts = dict(as_object(pool))
        if facts["scope"] is None:
            del facts["scope"]
        pools[name] = facts
    return data | {"pools": pools}


def _plain(value: Json) -> Json:
    """Return the value with lists in place of tuples."""
    match value:
        case Mapping():
            return {key: _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return value
