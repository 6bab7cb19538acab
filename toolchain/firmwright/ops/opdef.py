"""The definition of an operator (one module each here), and how it reads rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from firmwright.base.dtypes import Array, DType
from firmwright.ir import tir
from firmwright.ir.graph import Call, OpCall, TensorType, Value
from firmwright.ir.settings import NumericsProfile
from firmwright.ir.tir.builder import Builder
from firmwright.ops.kernel import Kernel

DefinedIn: TypeAlias = Literal["both", "each", "litert", "tflm", "neither"]
"""TFLite's profiles with an operator: both, with one result, or each with its own."""


@dataclass(frozen=True, slots=True)
class RowWindow:
    """The input rows (axis 1 of 4) that an output row needs, the same for every input.

    Output row r reads `window_height` input rows from `stride * r - pad_before`. Rows
    outside the input read as `pad_value`; None if the operator never reads them or
    treats them differently. `whole_inputs`, such as per-channel factors, are read
    completely.
    """

    window_height: int = 1
    stride: int = 1
    pad_before: int = 0
    pad_value: float | None = None
    whole_inputs: frozenset[int] = frozenset()

    def row_inputs(self, call: Call) -> tuple[Value, ...]:
        whole = {call.inputs[index] for index in self.whole_inputs}
        return tuple(value for value in call.variables if value not in whole)

    def for_bands(self, count: int) -> RowWindow:
        height = self.stride * (count - 1) + self.window_height
        return replace(self, window_height=height, stride=self.stride * count)


@dataclass(frozen=True, slots=True)
class RowReduction:
    """A reduction over all rows, computed one row at a time.

    `accumulate(call, b, x, acc)` adds rows `x` of shape (1, rows, W, C) to `acc`, which
    has `count` elements of `dtype`, initially zero. `finish(call, b, acc, y)` computes
    the output from `acc`.
    """

    dtype: DType
    count: int
    accumulate: Callable[[OpCall, Builder, tir.Buffer, tir.Buffer], None]
    finish: Callable[[OpCall, Builder, tir.Buffer, tir.Buffer], None]


@dataclass(frozen=True, slots=True)
class Subviews:
    """A data movement without a copy: tensors that are slices of one larger tensor.

    `of` is "input" if the outputs are slices of the first input, and "output" if the
    inputs are slices of the output. `offsets` are the element offsets of the slices.
    """

    of: Literal["input", "output"]
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OpDef:
    """One operator: type inference, numpy reference and default lowering.

    `lower` receives a kernel with its parameters declared. `is_view` is set if the
    output has the bytes of the input; `subviews` describes a call that needs no copy.
    `row_access` describes row-by-row computation; None means that it is impossible.
    `restrictions` lists unsupported uses; `inputs` and `results` are names, with `?` if
    one may be absent and `...` if it repeats. `module` is the Python module that
    defines the operator; its docstring has the semantics. `is_audio_front_end` marks
    steps with which models take sound instead of features, and `calls_float_functions`
    operators of extensions whose loops call exp, floor and the like, which schedules of
    FPUs compute in line.
    `is_precompiled` marks parts of a model that another compiler has translated, so
    that the file differs from the source of the model. `litert_gap` gives why LiteRT's
    reference kernel does not define the result of a call that TFLM does; "" if it does.
    """

    name: str
    infer: Callable[[OpCall], tuple[TensorType, ...]]
    reference: Callable[[OpCall, Sequence[Array]], tuple[Array, ...]]
    lower: Callable[[OpCall, Kernel], None]
    dtypes: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    results: tuple[str, ...] = ("y",)
    module: str = ""
    numerics: DefinedIn = "both"
    macs: Callable[[OpCall], int] = lambda call: 0
    is_view: bool = False
    subviews: Callable[[OpCall], Subviews | None] = lambda call: None
    row_access: Callable[[OpCall], RowWindow | RowReduction | None] = lambda call: None
    restrictions: str = ""
    litert_gap: Callable[[OpCall], str] = lambda call: ""
    is_audio_front_end: bool = False
    calls_float_functions: bool = False
    is_precompiled: bool = False

    @property
    def profiles(self) -> tuple[NumericsProfile, ...]:
        match self.numerics:
            case "both" | "each":
                return ("litert", "tflm")
            case "litert" | "tflm" as only:
                return (only,)
        return ()


OpTable: TypeAlias = Mapping[str, OpDef]
