"""Construction of networks call by call, without a framework or a model file.

    g = GraphBuilder("gate")
    x = g.input("x", (1, 8), scale=0.5, zero_point=3)
    w = g.constant(weights, scale=0.02)
    options = {"activation": "relu", "keep_dims": False}
    y = g.call("fully_connected", x, w, None, scale=0.25, **options)
    model = g.model(y)

docs/reference/operators.md describes operators and attributes. Calls are checked, their
types inferred.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from firmwright.base.dtypes import DTYPES, DType, find_dtype
from firmwright.base.errors import (
    InternalError,
    ModelError,
    NotSupportedError,
    UsageError,
)
from firmwright.base.quant import Quantization
from firmwright.flows.model.model import Model
from firmwright.ir.core import Attr, Constant
from firmwright.ir.graph import Call, Function, OpCall, State, TensorType, Value
from firmwright.ir.graph.attributes import attributes_class
from firmwright.ir.graph.attributes.base import (
    OpAttrs,
    attribute_specs,
    attrs_to_mapping,
    make_attrs,
)
from firmwright.ir.graph.separate_results import separate_results
from firmwright.ir.graph.verify import verify_graph
from firmwright.ir.module import IRModule
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef
from firmwright.ops.registry import op_table

_HINT = "docs/reference/operators.md describes its inputs and attributes."
Scale = float | Sequence[float] | None


@dataclass(frozen=True, slots=True)
class _ResultSpec:
    shape: Sequence[int] | None
    dtype: str
    scale: Scale
    zero_point: int


class GraphBuilder:
    """A network under construction: its calls, constants and state.

    Default names are t0, t1, ... and c0, c1, ... Methods raise UsageError for invalid
    arguments.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._ops: Mapping[str, OpDef] = op_table()
        self._inputs: list[Value] = []
        self._calls: list[Call] = []
        self._constants: dict[str, Constant] = {}
        self._state: dict[str, State] = {}
        self._names: set[str] = set()

    def input(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str = "int8",
        *,
        scale: Scale = None,
        zero_point: int = 0,
    ) -> Value:
        kind = TensorType(
            tuple(shape), self._dtype(dtype), _quantization(scale, zero_point)
        )
        value = Value(self._take(name), kind)
        self._inputs.append(value)
        return value

    def constant(
        self,
        array: npt.ArrayLike,
        *,
        name: str = "",
        scale: Scale = None,
        zero_point: int = 0,
        axis: int = 0,
    ) -> Value:
        """Add a constant like the array; a sequence has a scale per index of `axis`."""
        values = np.asarray(array)
        dtype = self._dtype(values.dtype.name)
        name = self._take(name or f"c{len(self._constants)}")
        self._constants[name] = Constant.from_array(name, values, dtype)
        quantization = _quantization(scale, zero_point, axis)
        return Value(name, TensorType(values.shape, dtype, quantization), name)

    def state(
        self,
        name: str,
        initial: npt.ArrayLike,
        *,
        scale: Scale = None,
        zero_point: int = 0,
    ) -> Value:
        """Add a state tensor; `set_next_state` sets its value for the next run."""
        first = self.constant(
            initial, name=f"{name}/initial", scale=scale, zero_point=zero_point
        )
        value = Value(self._take(name), first.type)
        self._state[name] = State(value, value, first.name)
        return value

    def set_next_state(self, state: Value, following: Value) -> None:
        """Make `following` the value of `state` in the next run."""
        if state.name not in self._state:
            known = ", ".join(self._state) or "those that GraphBuilder.state makes"
            hint = f"one of {known}."
            raise UsageError(f"{state.name} is not a state of the graph.", hint=hint)
        if following.type != state.type:
            own = _format_type(following.type)
            other = _format_type(state.type)
            raise UsageError(
                f"{following.name} cannot become {state.name}: "
                f"the one is {own}, the other {other}.",
                hint="a call whose result has the state's type, scale and zero point.",
            )
        initial = self._state[state.name].initial
        self._state[state.name] = State(state, following, initial)

    def call(
        self,
        op: str,
        *inputs: Value | None,
        name: str = "",
        shape: Sequence[int] | None = None,
        dtype: str = "",
        scale: Scale = None,
        zero_point: int = 0,
        **attrs: Attr,
    ) -> Value:
        """Add a call and return its first result; None is an omitted optional input.

        By default the result has the first input's type; only `reshape` needs `shape`.
        Of an operator with an attribute `shape` or `scale`, that is meant.
        """
        names = attribute_specs(attributes_class(op))
        if shape is not None and "shape" in names:
            attrs["shape"], shape = tuple(shape), None
        if isinstance(scale, float) and "scale" in names:
            attrs["scale"], scale = scale, None
        spec = _ResultSpec(shape, dtype, scale, zero_point)
        return self._call(op, inputs, (name,), spec, attrs)[0]

    def calls(
        self,
        op: str,
        *inputs: Value | None,
        results: Sequence[str] = (),
        dtype: str = "",
        scale: Scale = None,
        zero_point: int = 0,
        types: Sequence[TensorType] = (),
        **attrs: Attr,
    ) -> tuple[Value, ...]:
        """Add a call and return all `results`, such as the parts of a split.

        `types` are those of the results if they are not alike.
        """
        spec = _ResultSpec(None, dtype, scale, zero_point)
        return self._call(op, inputs, results, types or spec, attrs)

    def model(self, *results: Value) -> Model:
        """Return the network with these results as a verified model."""
        return Model(self.module(*results))

    def module(self, *results: Value) -> IRModule:
        inputs = tuple(self._inputs)
        calls = tuple(self._calls)
        main = Function(
            "main", inputs, calls, results, state=tuple(self._state.values())
        )
        module = IRModule(
            self.name, {"main": main}, dict(self._constants), entry_name="main"
        )
        verify_graph(main, module, self._ops)
        return module.with_function(separate_results(main))

    def _call(
        self,
        op: str,
        inputs: Sequence[Value | None],
        names: Sequence[str],
        spec: _ResultSpec | Sequence[TensorType],
        attrs: Mapping[str, Attr],
    ) -> tuple[Value, ...]:
        opdef = self._operator(op)
        given = [value for value in inputs if value is not None]
        if not given:
            hint = "GraphBuilder.constant makes one."
            raise UsageError(f"{op} is called without an input.", hint=hint)
        typed = _typed_attrs(op, attrs)
        constants = tuple(
            self._constants.get(v.constant or "") if v else None for v in inputs
        )
        types = tuple(None if value is None else value.type for value in inputs)
        if isinstance(spec, _ResultSpec):
            spec = (self._kind(spec, given[0].type),) * max(1, len(names))
        outputs = tuple(spec)
        kinds = _infer_types(opdef, OpCall(op, types, outputs, typed, constants))
        results: list[Value] = []
        for place, kind in enumerate(kinds):
            name = names[place] if place < len(names) else ""
            results.append(Value(self._take(name or self._next(place)), kind))
        self._calls.append(Call(op, tuple(inputs), tuple(results), typed))
        return tuple(results)

    def _kind(self, spec: _ResultSpec, like: TensorType) -> TensorType:
        quantization = like.quantization
        shape = like.shape if spec.shape is None else tuple(spec.shape)
        dtype = self._dtype(spec.dtype) if spec.dtype else like.dtype
        if spec.scale is not None:
            quantization = _quantization(spec.scale, spec.zero_point)
        return TensorType(shape, dtype, quantization)

    def _operator(self, name: str) -> OpDef:
        if name not in self._ops:
            near = difflib.get_close_matches(name, self._ops, n=3)
            hint = f"{' or '.join(near)}." if near else "`firmwright ops` lists all."
            raise UsageError(f"there is no operator {name!r}.", hint=hint)
        return self._ops[name]

    def _dtype(self, name: str) -> DType:
        dtype = find_dtype(name)
        if dtype is None:
            hint = f"{', '.join(kind.name for kind in DTYPES)}."
            raise UsageError(f"there is no element type {name!r}.", hint=hint)
        return dtype

    def _next(self, place: int) -> str:
        return f"t{len(self._calls)}" + (f":{place}" if place else "")

    def _take(self, name: str) -> str:
        if name in self._names:
            raise UsageError(
                f"two tensors are called {name!r}.", hint="another name for one."
            )
        self._names.add(name)
        return name


def _typed_attrs(op: str, values: Mapping[str, Attr]) -> OpAttrs:
    try:
        return make_attrs(op, attributes_class(op), values)
    except ModelError as error:
        raise UsageError(error.what, hint=error.hint or _HINT) from error


def _infer_types(opdef: OpDef, call: OpCall) -> tuple[TensorType, ...]:
    """Return the result types; also lower the call, which checks every attribute."""
    try:
        kinds = opdef.infer(call)
        sound = replace(call, outputs=kinds)
        opdef.lower(sound, Kernel("checked", sound))
    except NotSupportedError as error:
        raise UsageError(f"{call.op} does not support this call: {error}.") from error
    except ModelError as error:
        raise UsageError(error.what, hint=_HINT) from error
    except (AssertionError, TypeError, InternalError) as error:
        said = ", ".join(f"{k}={v!r}" for k, v in attrs_to_mapping(call.attrs).items())
        what = f"{call.op} cannot be called with {said or 'no attributes'}."
        raise UsageError(what, hint=_HINT) from error
    return kinds


def _quantization(scale: Scale, zero_point: int, axis: int = 0) -> Quantization | None:
    if scale is None:
        return None
    if isinstance(scale, int | float):
        return Quantization((float(np.float32(scale)),), (zero_point,))
    scales = tuple(float(np.float32(item)) for item in scale)
    return Quantization(scales, (zero_point,) * len(scales), axis)


def _format_type(kind: TensorType) -> str:
    text = f"{kind.dtype.name} {list(kind.shape)}"
    if kind.quantization is not None:
        quant = kind.quantization
        text += f" of scale {quant.scales}, zero point {quant.zero_points}"
    return text
