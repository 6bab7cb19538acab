"""The record of an operator, and of one call of it as every consumer sees it.

Record types live here, low; the entries live high, one file an operator under `ops/`. Frontends,
verifier, interpreter, lowering and documentation all read the same record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy.typing as npt

from firmwright.base.dtypes import DType
from firmwright.base.errors import InternalError
from firmwright.base.quant import Rounding
from firmwright.ir.core import Attrs, Constant
from firmwright.ir.graph.nodes import Call, TensorType, Value
from firmwright.ir.raw_model import RawNode

NumericsProfile: TypeAlias = Literal["litert", "tflm"]
Array: TypeAlias = npt.NDArray[Any]


CustomOpPredicate: TypeAlias = Callable[[str, str], bool]
"""Whether somebody takes the operator of that domain and name, which is none of ours."""


def accept_no_custom_op(domain: str, name: str) -> bool:
    """Nobody takes any."""
    return False


class NotSupportedError(Exception):
    """Raised by an importer or `infer`: the reason why a sound call cannot be taken."""


@dataclass(frozen=True, slots=True)
class OpCall:
    """One call: types of inputs (None: absent) and outputs, attributes, constants, profile.

    `constants[i]` is set when input i is a constant. `scopes` are the pools that inputs, then
    outputs, are known to lie in, "" where the planner will choose; () if nothing is known.
    """

    op: str
    inputs: tuple[TensorType | None, ...]
    outputs: tuple[TensorType, ...]
    attrs: Attrs = field(default_factory=dict)
    constants: tuple[Constant | None, ...] = ()
    numerics: NumericsProfile = "litert"
    scopes: tuple[str, ...] = ()

    def input_scope(self, index: int) -> str:
        """The pool that an input lies in; "" if the planner will choose."""
        return self.scopes[index] if index < len(self.inputs) and self.scopes else ""

    def output_scope(self, index: int = 0) -> str:
        """As `input_scope`, of an output."""
        return self.scopes[len(self.inputs) + index] if self.scopes else ""

    def input(self, index: int) -> TensorType:
        """The type of an input that must be there."""
        found = self.inputs[index] if index < len(self.inputs) else None
        if found is None:
            raise InternalError(f"{self.op} has no input {index}")
        return found

    def has_input(self, index: int) -> bool:
        return index < len(self.inputs) and self.inputs[index] is not None

    @property
    def output(self) -> TensorType:
        return self.outputs[0]

    def constant(self, index: int) -> Constant | None:
        return self.constants[index] if index < len(self.constants) else None

    def int_attr(self, name: str, default: int | None = None) -> int:
        value = self.attrs.get(name, default)
        if not isinstance(value, int):
            raise InternalError(f"{self.op}: attribute {name} is {value!r}, not an int")
        return value

    def ints_attr(self, name: str) -> tuple[int, ...]:
        value = self.attrs[name]
        if not isinstance(value, tuple):
            raise InternalError(f"{self.op}: attribute {name} is {value!r}, not a tuple")
        if not all(isinstance(item, int) for item in value):
            raise InternalError(f"{self.op}: attribute {name} is {value!r}, not of ints")
        return tuple(int(item) for item in value)  # type: ignore[arg-type]  # checked above

    def str_attr(self, name: str, default: str = "") -> str:
        return str(self.attrs.get(name, default))


@dataclass(frozen=True, slots=True)
class ImportContext:
    """What an importer may look at: the raw node with the types and constants of its tensors."""

    node: RawNode
    inputs: tuple[TensorType | None, ...]
    outputs: tuple[TensorType, ...]
    constants: tuple[Array | None, ...]


@dataclass(frozen=True, slots=True)
class ImplicitState:
    """What a call keeps for the next run; every element is `fill` before the first one.

    `next_output` is the output of the node that it will be; None where the call makes it apart.
    """

    name: str
    type: TensorType
    fill: int = 0
    next_output: int | None = None


@dataclass(frozen=True, slots=True)
class ImportedCall:
    """Our operator and attributes for a raw node; `inputs` are the positions of those kept.

    `updated_inputs` are positions of variable tensors of the node that the call gives new values:
    these
    are outputs of the call, after the node's. Each of `implicit_state` is one more input of the
    call and,
    after those and unless it becomes another output, one more output: state that the file does not
    speak of.
    """

    op: str
    attrs: Attrs
    inputs: tuple[int, ...]
    updated_inputs: tuple[int, ...] = ()
    implicit_state: tuple[ImplicitState, ...] = ()


@dataclass(frozen=True, slots=True)
class NumericsSpec:
    """One cell of the table operator x profile in docs/numerics.md."""

    rounding: Rounding | None
    accumulator: str
    source: str


@dataclass(frozen=True, slots=True)
class CaseTensor:
    """A tensor of a conformance case; `data` set means constant.

    `is_state`: a variable tensor, which the operator itself writes for the next run. `limits` are
    the
    least and greatest value that a given input may take, where the definition does not take every
    one: indices, divisors.
    """

    shape: tuple[int, ...]
    dtype: str
    scales: tuple[float, ...] = ()
    zero_points: tuple[int, ...] = ()
    axis: int | None = None
    data: Array | None = None
    is_state: bool = False
    value_range: tuple[int, int] | None = None

    @property
    def has_samples(self) -> bool:
        """Whether each sample has values for it."""
        return self.data is None and not self.is_state


@dataclass(frozen=True, slots=True)
class ConformanceCase:
    """One conformance case, in the terms of the source format so that an outside oracle runs it.

    `builtin` is the TFLite operator name, `options` its decoded options (snake_case); `oracles` are
    the profiles, of those in the operator's table, whose oracle can run it. `intermediates` are
    tensors without values that the format asks for, of which only the quantisations count.
    """

    name: str
    builtin: str
    inputs: tuple[CaseTensor | None, ...]
    outputs: tuple[CaseTensor, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    oracles: tuple[NumericsProfile, ...] = ("litert", "tflm")
    intermediates: tuple[CaseTensor, ...] = ()


@dataclass(frozen=True, slots=True)
class RowWindow:
    """Which input rows (axis 1 of four) an output row is made of, alike for every variable input.

    Output row r takes `window_height` input rows from `stride * r - before` on; those outside of
    the input
    count as `outside` (None: the operator never looks there, or rows outside are not alike). Of the
    inputs in `whole`, by index, every row takes everything: factors of channels.
    """

    window_height: int = 1
    stride: int = 1
    pad_before: int = 0
    pad_value: float | None = None
    whole_inputs: frozenset[int] = frozenset()

    def row_inputs(self, call: Call) -> tuple[Value, ...]:
        """The inputs of `call` that its rows are made of, row by row."""
        taken = {call.inputs[index] for index in self.whole_inputs}
        return tuple(value for value in call.variables if value not in taken)

    def for_bands(self, count: int) -> RowWindow:
        """The same of bands of `count` output rows: band r takes rows from stride * r - before."""
        window_height = self.stride * (count - 1) + self.window_height
        return replace(self, window_height=window_height, stride=self.stride * count)


@dataclass(frozen=True, slots=True)
class RowReduction:
    """A reduction of all rows to one output, a row at a time.

    `accumulate(call, b, x, acc)` takes rows `x` (shape 1, rows, W, C) into `acc`, `count` elements
    of `dtype` that begin as zeros; `finish(call, b, acc, y)` makes the output of them.
    """

    dtype: DType
    count: int
    accumulate: Callable[[OpCall, Any, Any, Any], None]
    finish: Callable[[OpCall, Any, Any, Any], None]


SUBVIEWS_OF, SUBVIEW_OFFSETS = "subviews_of", "offsets"
"""Attributes of a call that needs no code: the fields of its `Subviews`."""


@dataclass(frozen=True, slots=True)
class Subviews:
    """What a call rearranges without a copy: its parts lie in a whole, `offsets` elements on.

    `of` is "input" where the outputs are parts of the first input, "output" where the inputs are
    parts of the output.
    """

    of: Literal["input", "output"]
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OpDef:
    """One operator: shape rule, numpy reference, default lowering, importers, cases, numerics.

    `lower` gets an `ops.kernel.Kernel` whose parameters exist already. `view` says that the output
    is the input's bytes, `windows` where parts lie if a call need not move any. `numerics` has a
    cell for each profile that the operator exists in. `rows` says how a call is computed row by
    row, None where it cannot be. `limits` says to users what of it is not taken, in a few words.
    """

    name: str
    infer: Callable[[OpCall], tuple[TensorType, ...]]
    reference: Callable[[OpCall, Sequence[Array]], tuple[Array, ...]]
    lower: Callable[[OpCall, Any], None]
    imports: Mapping[str, Callable[[ImportContext], ImportedCall]]
    cases: Callable[[], Iterator[ConformanceCase]]
    dtypes: tuple[str, ...]
    numerics: Mapping[str, NumericsSpec] = field(default_factory=dict)
    macs: Callable[[OpCall], int] = lambda call: 0
    is_view: bool = False
    subviews: Callable[[OpCall], Subviews | None] = lambda call: None
    row_access: Callable[[OpCall], RowWindow | RowReduction | None] = lambda call: None
    restrictions: str = ""


OpTable: TypeAlias = Mapping[str, OpDef]
