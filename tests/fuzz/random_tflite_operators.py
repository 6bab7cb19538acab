"""Random .tflite graphs of many operators over tensors of several types.

A layer reads earlier tensors of the types that LiteRT's reference kernel takes. Floats
are rounded in operators such as LOGISTIC, so operators with steps, such as ARG_MAX or
QUANTIZE, read only floats that equal those of the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tests.fuzz.random_tflite import FIXED, Made, RandomGraph
from tests.ops.tflite_writer import OPTIONS

BYTES = ("int8", "uint8")
QUANTIZED = (*BYTES, "int16")
REAL = (*QUANTIZED, "float32")
NUMBERS = (*REAL, "int32", "int64")
ANY = (*NUMBERS, "bool")
LARGEST = 600
"""The most elements of a result."""


@dataclass(frozen=True, slots=True)
class Unary:
    """An elementwise operator: types, and whether its output has its own scale."""

    dtypes: tuple[str, ...]
    rescales: bool = True
    is_exact: bool = True
    is_steep: bool = False
    """Whether it enlarges errors of floats."""


UNARY = {
    "ABS": Unary(("int8", "int16", "float32", "int32"), rescales=False),
    "NEG": Unary(("float32", "int32", "int64")),
    "RELU": Unary(REAL),
    "RELU6": Unary(REAL),
    "RELU_N1_TO_1": Unary((*BYTES, "float32")),
    "RELU_0_TO_1": Unary(("int8", "float32")),
    "LEAKY_RELU": Unary(REAL),
    "LOGISTIC": Unary(REAL, is_exact=False),
    "TANH": Unary(REAL, is_exact=False),
    "HARD_SWISH": Unary((*BYTES, "float32"), is_exact=False),
    "GELU": Unary((*BYTES, "float32"), is_exact=False),
    "EXP": Unary(("int8", "int16", "float32"), is_exact=False, is_steep=True),
    "SIN": Unary(("float32",), is_exact=False, is_steep=True),
    "COS": Unary(("float32",), is_exact=False, is_steep=True),
    "SQUARE": Unary(("float32",), is_exact=False),
    "FLOOR": Unary(("float32",), is_steep=True),
    "SIGN": Unary(("float32",), is_steep=True),
    "LOGICAL_NOT": Unary(("bool",)),
    "SOFTMAX": Unary((*BYTES, "int16", "float32"), is_exact=False),
    "LOG_SOFTMAX": Unary((*BYTES, "float32"), is_exact=False),
    "L2_NORMALIZATION": Unary((*BYTES, "float32"), is_exact=False),
    "ZEROS_LIKE": Unary(("float32", "int32", "int64")),
}
OPERATOR_OPTIONS: dict[str, dict[str, object]] = {
    "LEAKY_RELU": {"alpha": 0.1},
    "SOFTMAX": {"beta": 1.0},
    "ADD": {"potScaleInt16": False},
    "SUB": {"potScaleInt16": False},
}
FIXED_RESULTS = FIXED | {
    ("LOG_SOFTMAX", "int8"): (16 / 256, 127),
    ("LOG_SOFTMAX", "uint8"): (16 / 256, 255),
    ("L2_NORMALIZATION", "int8"): (1 / 128, 0),
    ("L2_NORMALIZATION", "uint8"): (1 / 128, 128),
}
BINARY: dict[str, tuple[str, ...]] = {
    "ADD": NUMBERS,
    "SUB": NUMBERS,
    "MUL": NUMBERS,
    "MAXIMUM": NUMBERS,
    "MINIMUM": NUMBERS,
    "SQUARED_DIFFERENCE": ("int8", "float32", "int32"),
    "PRELU": (*BYTES, "float32"),
    "FLOOR_DIV": ("int32",),
    "FLOOR_MOD": ("int32", "int64"),
    "LOGICAL_AND": ("bool",),
    "LOGICAL_OR": ("bool",),
}
WITH_ACTIVATION = ("ADD", "SUB", "MUL")
SAME_SCALE = ("MAXIMUM", "MINIMUM")
COMPARISONS: dict[str, tuple[str, ...]] = {
    "EQUAL": (*BYTES, "float32", "int32", "int64", "bool"),
    "NOT_EQUAL": (*BYTES, "float32", "int32", "int64", "bool"),
    "GREATER": (*BYTES, "float32", "int32", "int64"),
    "GREATER_EQUAL": (*BYTES, "float32", "int32", "int64"),
    "LESS": (*BYTES, "float32", "int32", "int64"),
    "LESS_EQUAL": (*BYTES, "float32", "int32", "int64"),
}
REDUCTIONS: dict[str, tuple[str, ...]] = {
    "MEAN": (*BYTES, "int16", "float32", "int32", "int64"),
    "SUM": ("float32", "int32", "int64"),
    "REDUCE_MAX": (*BYTES, "int16", "float32", "int32", "int64"),
    "REDUCE_MIN": (*BYTES, "int16", "float32", "int32", "int64"),
    "REDUCE_PROD": ("float32", "int32", "int64"),
    "REDUCE_ANY": ("bool",),
    "REDUCE_ALL": ("bool",),
}
CASTS = ("float32", "int32", "int64", "bool")
REQUANTIZATIONS = {
    "float32": QUANTIZED,
    "int8": ("int8", "uint8", "int16"),
    "uint8": ("int8", "uint8"),
    "int16": ("int8", "int16"),
}


class OperatorGraph(RandomGraph):
    """A graph of any operators, whose types mix: comparisons, indices, casts."""

    LAYERS: tuple[str, ...] = (
        *("conv", "depthwise", "dense", "pool", "join", "slice", "pad"),
        *("unary", "unary", "unary", "binary", "binary", "binary"),
        *("comparison", "selection", "reduction", "cast", "requantize"),
    )

    def quantization_of(self, dtype: str) -> tuple[float, int]:
        if dtype not in QUANTIZED:
            return 0.0, 0
        scale = float(np.float32(2 ** self.rng.uniform(-9, -3)))
        zero_point = {"int8": self.rng.randint(-128, 127), "int16": 0}
        zero_point["uint8"] = zero_point["int8"] + 128
        return scale, zero_point[dtype]

    def add_input(self, name: str, dtype: str, shape: Sequence[int]) -> None:
        made = self.typed(name, dtype, shape, self.quantization_of(dtype))
        self.graph.table.inputs.append(made.index)

    def typed(
        self,
        name: str,
        dtype: str,
        shape: Sequence[int],
        quantization: tuple[float, int],
        *,
        is_exact: bool = True,
        limit: int = 0,
    ) -> Made:
        index = self.graph.tensor(name, dtype, shape, *quantization)
        exact = is_exact or dtype != "float32"
        made = Made(index, dtype, tuple(shape), *quantization, exact, limit)
        self.made.append(made)
        return made

    def data(self) -> bytes:
        shape = (1, *self.rng.choices(range(2, 7), k=2), self.rng.choice([1, 2, 3, 4]))
        self.add_input("x", self.dtype, shape)
        others = (self.dtype, "float32", "int32", "int64", "bool", *BYTES)
        for name in ("z", "w")[: self.rng.randint(0, 2)]:
            like = shape if self.rng.random() < 0.6 else self.part_of(shape)
            self.add_input(name, self.rng.choice(others), like)
        count = self.rng.randint(5, 14)
        while count:
            before = len(self.made)
            getattr(self, self.rng.choice(self.LAYERS))(f"t{len(self.made)}")
            count -= len(self.made) > before
        inputs = set(self.graph.table.inputs)
        unused = [m.index for m in self.made if m.index not in self.used | inputs]
        self.graph.outputs(*unused)
        return self.file.data()

    def part_of(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return a shape that broadcasts to `shape`: some axes of 1, or fewer axes."""
        axes = [n if self.rng.random() < 0.6 else 1 for n in shape]
        return tuple(axes[self.rng.randint(0, len(axes) - 1) :])

    def any_of(
        self, dtypes: Sequence[str], *, exact: bool = False, rank: int = 0
    ) -> Made | None:
        """Return one of the tensors of these types, mostly of a network's type."""
        fitting = [
            m
            for m in self.made
            if m.dtype in dtypes and (m.is_exact or not exact)
            if rank in (0, len(m.shape)) and m.shape
        ]
        return self.rng.choice(fitting) if fitting else None

    def apply(
        self,
        name: str,
        op: str,
        inputs: Sequence[Made | int],
        shape: Sequence[int],
        *,
        dtype: str = "",
        quantization: tuple[float, int] | None = None,
        is_exact: bool = True,
        limit: int = 0,
        **options: object,
    ) -> None:
        """Add an operator whose result has the scale of its first input by default."""
        if int(np.prod(shape)) > LARGEST:
            return
        first = next(item for item in inputs if isinstance(item, Made))
        kind = dtype or first.dtype
        if quantization is None:
            is_same = kind == first.dtype
            same = (first.scale, first.zero_point)
            quantization = same if is_same else self.quantization_of(kind)
        read = [item for item in inputs if isinstance(item, Made)]
        exact = is_exact and all(item.is_exact for item in read)
        result = self.typed(
            name, kind, shape, quantization, is_exact=exact, limit=limit
        )
        self.connect(op, inputs, [result], OPTIONS.get(op, ""), **options)

    def constant(self, name: str, like: Made, shape: Sequence[int]) -> Made:
        """Return random values of the type of `like`, in range where it has one."""
        if like.dtype == "float32":
            values = self.values.normal(size=shape).astype(np.float32)
        elif like.dtype == "bool":
            values = self.values.random(shape) < 0.5
        else:
            low = max(np.iinfo(like.dtype).min, -100) if like.dtype != "uint8" else 0
            values = self.values.integers(low, low + 200, shape).astype(like.dtype)
            values = np.where(values == 0, 3, values).astype(like.dtype)
        index = self.graph.constant(f"{name}/k", values)
        scale, zero_point = self.quantization_of(like.dtype)
        if scale:
            self.quantize(index, np.array([scale], np.float32), 0, zero_point)
        return Made(index, like.dtype, tuple(shape), scale, zero_point)

    def same_scale_constant(self, name: str, like: Made, shape: Sequence[int]) -> Made:
        made = self.constant(name, like, shape)
        if like.scale:
            scales = np.array([like.scale], np.float32)
            self.quantize(made.index, scales, 0, like.zero_point)
        return replace(made, scale=like.scale, zero_point=like.zero_point)

    def axes(self, rank: int) -> list[int]:
        chosen = sorted(self.rng.sample(range(rank), self.rng.randint(1, rank)))
        return [axis - rank if self.rng.random() < 0.3 else axis for axis in chosen]

    # ---- elementwise -----------------------------------------------------------------

    def unary(self, name: str) -> None:
        op = self.rng.choice(list(UNARY))
        kind = UNARY[op]
        x = self.any_of(kind.dtypes, exact=kind.is_steep)
        if x is None:
            return
        own = self.quantization_of(x.dtype) if kind.rescales else None
        quantization = FIXED_RESULTS.get((op, x.dtype), own)
        options = OPERATOR_OPTIONS.get(op, {})
        self.apply(
            name,
            op,
            [x],
            x.shape,
            quantization=quantization,
            is_exact=kind.is_exact,
            **options,
        )

    def operand(self, name: str, a: Made, *, same: bool) -> Made:
        """Return a constant or an earlier tensor that broadcasts to `a`."""
        fitting = [m for m in self.made if m.dtype == a.dtype and _fits(m, a)]
        if same:
            key = (a.scale, a.zero_point)
            fitting = [m for m in fitting if (m.scale, m.zero_point) == key]
        if fitting and self.rng.random() < 0.6:
            return self.rng.choice(fitting)
        make = self.same_scale_constant if same else self.constant
        return make(name, a, self.part_of(a.shape))

    def binary(self, name: str) -> None:
        op = self.rng.choice(list(BINARY))
        a = self.any_of(BINARY[op])
        if a is None:
            return
        same = op in SAME_SCALE
        is_division = op in ("FLOOR_DIV", "FLOOR_MOD")
        fixed = self.constant(name, a, self.part_of(a.shape))
        b = fixed if is_division else self.operand(name, a, same=same)
        if op == "PRELU":
            b = self.constant(name, a, (1,) * (len(a.shape) - 2) + a.shape[-1:])
        swaps = self.rng.random() < 0.3 and not is_division and op != "PRELU"
        options = dict(OPERATOR_OPTIONS.get(op, {}))
        if op in WITH_ACTIVATION and a.dtype in REAL:
            options["fusedActivationFunction"] = self.rng.choice([0, 0, 1, 3])
        self.apply(
            name,
            op,
            [b, a] if swaps else [a, b],
            a.shape,
            quantization=None if same else self.quantization_of(a.dtype),
            is_exact=op in SAME_SCALE,
            **options,
        )

    def comparison(self, name: str) -> None:
        op = self.rng.choice(list(COMPARISONS))
        a = self.any_of(COMPARISONS[op], exact=True)
        if a is None:
            return
        b = self.operand(name, a, same=self.rng.random() < 0.5)
        if b.is_exact:
            self.apply(name, op, [a, b], a.shape, dtype="bool")

    def selection(self, name: str) -> None:
        condition = self.any_of(("bool",))
        alike = [m for m in self.made if condition and m.shape == condition.shape]
        a = self.rng.choice([m for m in alike if m.dtype in NUMBERS] or [None])
        if a is not None and condition is not None:
            b = self.operand(name, a, same=True)
            op = "SELECT_V2"
            if b.shape == a.shape and self.rng.random() < 0.5:
                op = "SELECT"
            self.apply(name, op, [condition, a, b], a.shape, **_like(a))

    def reduction(self, name: str) -> None:
        op = self.rng.choice(list(REDUCTIONS))
        x = self.any_of(REDUCTIONS[op])
        if x is None:
            return
        axes, keeps = self.axes(len(x.shape)), self.rng.random() < 0.5
        reduced = {axis % len(x.shape) for axis in axes}
        sizes = [1 if k in reduced else n for k, n in enumerate(x.shape)]
        shape = [n for k, n in enumerate(sizes) if keeps or k not in reduced]
        own = self.quantization_of(x.dtype) if op == "MEAN" else None
        self.apply(
            name,
            op,
            [x, self.ints(name, axes)],
            shape,
            quantization=own,
            is_exact=op.startswith("REDUCE_M"),
            keepDims=keeps,
        )

    def cast(self, name: str) -> None:
        x = self.any_of(("float32", "int32", "int64", "bool"), exact=True)
        if x is None:
            return
        dtype = self.rng.choice([kind for kind in CASTS if kind != x.dtype])
        self.apply(name, "CAST", [x], x.shape, dtype=dtype, quantization=(0.0, 0))

    def requantize(self, name: str) -> None:
        x = self.any_of(tuple(REQUANTIZATIONS), exact=True)
        if x is None:
            return
        if x.dtype in QUANTIZED and x.scale and self.rng.random() < 0.4:
            self.apply(name, "DEQUANTIZE", [x], x.shape, dtype="float32")
            return
        dtype = self.rng.choice(REQUANTIZATIONS[x.dtype])
        own = self.quantization_of(dtype)
        self.apply(name, "QUANTIZE", [x], x.shape, dtype=dtype, quantization=own)


def _fits(part: Made, whole: Made) -> bool:
    """Return whether `part` broadcasts to the shape of `whole`."""
    if not part.shape or len(part.shape) > len(whole.shape):
        return False
    ends = whole.shape[len(whole.shape) - len(part.shape) :]
    return all(m in (1, n) for m, n in zip(part.shape, ends, strict=True))


def _like(a: Made) -> dict[str, object]:
    return {"dtype": a.dtype, "quantization": (a.scale, a.zero_point)}
