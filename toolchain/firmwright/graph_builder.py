"""Networks written by hand, call by call: a model without a framework and without a file.

    g = GraphBuilder("gate")
    x = g.input("x", (1, 8), scale=0.5, zero_point=3)
    w = g.constant(weights, scale=0.02)
    y = g.call("fully_connected", x, w, None, scale=0.25, activation="relu", keep_dims=False)
    model = g.model(y)

In: our own operators, as docs/operators.md lists them, with the attributes that their files in
`ops/` describe. Out: a `Model`, as `firmwright.load` gives one; what it computes is judged by the
operators' numpy references. Invariant: each call is checked as it is written; its result has the
shape and element type that the operator infers.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from firmwright.base.dtypes import DTYPES, DType, find_dtype
from firmwright.base.errors import InternalError, NotSupportedError, UsageError
from firmwright.base.quant import Quantization
from firmwright.flows.model import Model
from firmwright.ir.core import Attr, Constant
from firmwright.ir.graph.nodes import Call, Function, State, TensorType, Value
from firmwright.ir.graph.opdef import OpCall, OpDef
from firmwright.ir.graph.verify import verify_graph
from firmwright.ir.module import IRModule
from firmwright.ops.kernel import Kernel
from firmwright.ops.registry import op_table

Scale = float | Sequence[float] | None


class GraphBuilder:
    """The calls, constants and state so far. Names that are not given are t0, t1... and c0, c1...

    Every method raises UsageError where what it is asked for cannot be.
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
        """An input of the network."""
        kind = TensorType(tuple(shape), self._dtype(dtype), _quantization(scale, zero_point))
        made = Value(self._take(name), kind)
        self._inputs.append(made)
        return made

    def constant(
        self,
        array: npt.ArrayLike,
        *,
        name: str = "",
        scale: Scale = None,
        zero_point: int = 0,
        axis: int = 0,
    ) -> Value:
        """Weights or the like, of the array's shape and element type.

        Several scales are those of the channels along `axis`.
        """
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
        """What the network keeps from one run to the next; `keep` says what it becomes."""
        first = self.constant(initial, name=f"{name}/initial", scale=scale, zero_point=zero_point)
        made = Value(self._take(name), first.type)
        self._state[name] = State(made, made, first.name)
        return made

    def set_next_state(self, state: Value, following: Value) -> None:
        """`following` is what `state` is in the next run."""
        if state.name not in self._state:
            raise UsageError(
                f"{state.name} is no state of the graph.",
                hint=f"one of {', '.join(self._state) or 'those that GraphBuilder.state makes'}.",
            )
        if following.type != state.type:
            raise UsageError(
                f"{following.name} cannot become {state.name}: the one is "
                f"{_format_type(following.type)}, the other {_format_type(state.type)}.",
                hint="a call whose result has the state's type, scale and zero point.",
            )
        self._state[state.name] = State(state, following, self._state[state.name].initial)

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
        """The first result of an operator; None stands for an optional input that is absent.

        Where `dtype` and `scale` are not given the result is asked for as the first input is, and
        so is `shape`, which matters to `reshape` alone: operators know their results' shapes.
        """
        asked = _ResultSpec(shape, dtype, scale, zero_point)
        return self._call(op, inputs, (name,), asked, attrs)[0]

    def calls(
        self,
        op: str,
        *inputs: Value | None,
        results: Sequence[str] = (),
        dtype: str = "",
        scale: Scale = None,
        zero_point: int = 0,
        **attrs: Attr,
    ) -> tuple[Value, ...]:
        """All results of an operator, such as the parts of a split, by the names in `results`."""
        asked = _ResultSpec(None, dtype, scale, zero_point)
        return self._call(op, inputs, results, asked, attrs)

    def model(self, *results: Value) -> Model:
        """The network with these results, checked as a whole."""
        return Model(self.module(*results))

    def module(self, *results: Value) -> IRModule:
        """The same as a module of the compiler's own."""
        main = Function(
            "main",
            tuple(self._inputs),
            tuple(self._calls),
            results,
            state=tuple(self._state.values()),
        )
        made = IRModule(self.name, {"main": main}, dict(self._constants), attrs={"entry": "main"})
        verify_graph(main, made, self._ops)
        return made

    def _call(
        self,
        op: str,
        inputs: Sequence[Value | None],
        names: Sequence[str],
        asked: _ResultSpec,
        attrs: Mapping[str, Attr],
    ) -> tuple[Value, ...]:
        opdef = self._operator(op)
        like = next((value.type for value in inputs if value is not None), None)
        if like is None:
            raise UsageError(
                f"{op} is called without an input.", hint="GraphBuilder.constant makes one."
            )
        constants = tuple(self._constants.get(v.constant or "") if v else None for v in inputs)
        types = tuple(None if value is None else value.type for value in inputs)
        outputs = (self._kind(asked, like),) * max(1, len(names))
        kinds = _inferred(opdef, OpCall(op, types, outputs, attrs, constants))
        given = (*names, *("" for _ in kinds))
        made = tuple(
            Value(self._take(given[place] or self._next(place)), kind)
            for place, kind in enumerate(kinds)
        )
        self._calls.append(Call(op, tuple(inputs), made, attrs))
        return made

    def _kind(self, asked: _ResultSpec, like: TensorType) -> TensorType:
        return TensorType(
            like.shape if asked.shape is None else tuple(asked.shape),
            self._dtype(asked.dtype) if asked.dtype else like.dtype,
            like.quantization
            if asked.scale is None
            else _quantization(asked.scale, asked.zero_point),
        )

    def _operator(self, name: str) -> OpDef:
        if name not in self._ops:
            near = difflib.get_close_matches(name, self._ops, n=3)
            hint = f"{' or '.join(near)}." if near else "`firmwright ops` lists all."
            raise UsageError(f"there is no operator {name!r}.", hint=hint)
        return self._ops[name]

    def _dtype(self, name: str) -> DType:
        found = find_dtype(name)
        if found is None:
            raise UsageError(
                f"there is no element type {name!r}.",
                hint=f"{', '.join(kind.name for kind in DTYPES)}.",
            )
        return found

    def _next(self, place: int) -> str:
        return f"t{len(self._calls)}" + (f":{place}" if place else "")

    def _take(self, name: str) -> str:
        if name in self._names:
            raise UsageError(f"two tensors are called {name!r}.", hint="another name for one.")
        self._names.add(name)
        return name


@dataclass(frozen=True, slots=True)
class _ResultSpec:
    """What the writer says of a result."""

    shape: Sequence[int] | None
    dtype: str
    scale: Scale
    zero_point: int


def _inferred(opdef: OpDef, call: OpCall) -> tuple[TensorType, ...]:
    """The results' types; the loops are written too, which look at every attribute."""
    try:
        kinds = opdef.infer(call)
        sound = replace(call, outputs=kinds)
        opdef.lower(sound, Kernel("checked", sound))
    except NotSupportedError as error:
        raise UsageError(f"{call.op} cannot be called so: {error}.") from error
    except KeyError as error:
        raise UsageError(
            f"{call.op} needs the attribute {error}.", hint="its file in ops/ describes it."
        ) from error
    except (AssertionError, TypeError, InternalError) as error:
        said = ", ".join(f"{name}={value!r}" for name, value in call.attrs.items())
        raise UsageError(
            f"{call.op} cannot be called with {said or 'no attributes'}.",
            hint="its file in ops/ describes them.",
        ) from error
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
        text += f" of scale {kind.quantization.scales}, zero point {kind.quantization.zero_points}"
    return text
