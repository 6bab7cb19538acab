"""Conformance cases from case_tables.txt, which describes its lines, and extensions."""

import itertools
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import InternalError
from firmwright.base.extensions import door_modules
from firmwright.base.rounding import round_up
from firmwright.base.text_sections import read_sections
from firmwright.ir.settings import NumericsProfile

Profiles: TypeAlias = tuple[NumericsProfile, ...]
BOTH_PROFILES: Profiles = ("litert", "tflm")
EMULATED_BOARDS = ("mps2-an386", "mps3-an547")
"""The boards on which tests run the cases, besides the host."""


@dataclass(frozen=True, slots=True)
class CaseTensor:
    """A tensor of a conformance case; constant if `data` is set.

    `is_state` marks a variable tensor, which the operator updates. `value_range` is the
    minimum and maximum of sampled inputs, such as indices and divisors.
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
        """Whether the tensor is an input that takes new values in each sample."""
        return self.data is None and not self.is_state


@dataclass(frozen=True, slots=True)
class ConformanceCase:
    """One operator of a TFLite model with its tensors and options.

    `builtin` is the TFLite operator name and `options` its decoded options in
    snake_case. `oracles` are the profiles with a reference runtime that can run the
    case. `intermediates` are tensors with a quantization but no values.
    """

    name: str
    builtin: str
    inputs: tuple[CaseTensor | None, ...]
    outputs: tuple[CaseTensor, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    oracles: Profiles = BOTH_PROFILES
    intermediates: tuple[CaseTensor, ...] = ()


CaseTable: TypeAlias = Mapping[str, Callable[[], Iterator[ConformanceCase]]]
"""Operator name -> function that generates its cases."""


def float32(value: float) -> float:
    return float(np.float32(value))


def quantized(
    shape: Sequence[int], dtype: str, scale: float, zero_point: int = 0
) -> CaseTensor:
    """Return a tensor with one scale, which is rounded to float32."""
    return CaseTensor(tuple(shape), dtype, (float32(scale),), (zero_point,))


def constant(
    data: Array, scales: tuple[float, ...] = (), axis: int | None = None
) -> CaseTensor:
    """Return a constant with zero points 0; without `scales`, it is not quantized."""
    shape = tuple(map(int, data.shape))
    return CaseTensor(shape, data.dtype.name, scales, (0,) * len(scales), axis, data)


_PROFILES: Mapping[str, Profiles] = {
    "litert": ("litert",),
    "tflm": ("tflm",),
    "": BOTH_PROFILES,
}
_CASE = re.compile(
    r"(?P<name>\S+): (?P<builtin>[\w:]+)\((?P<inputs>.*)\)( via (?P<between>.*))? -> "
    r"(?P<outputs>.*?)(?P<options>( \w+=\S+)*)( (?P<profile>litert|tflm))?"
)
_TENSOR = re.compile(
    r"(?P<dtype>\w+)\[(?P<shape>[\d,]*)\](@(?P<scales>[^:]+):(?P<zero_points>\S+))?"
    r"( axis (?P<axis>\d+))?( in (?P<low>\S+)\.\.(?P<high>\S+))?(?P<state> state)?"
    r"( = (?P<data>.*))?"
)


def _cases(text: str) -> Iterator[ConformanceCase]:
    for line in re.sub(r"\n {4}", " ", text.strip()).splitlines():
        if line.startswith("#"):
            continue
        match = _CASE.fullmatch(line)
        if match is None:
            raise InternalError(f"this is no conformance case: {line}")
        rng = np.random.default_rng(zlib.crc32(line.encode()))
        inputs: list[CaseTensor | None] = []
        for words in match["inputs"].split(", "):
            inputs.append(_tensor(words, rng, inputs))
        options: dict[str, object] = {}
        for word in match["options"].split():
            name, _, value = word.partition("=")
            options[name] = _option(value)
        yield ConformanceCase(
            match["name"],
            match["builtin"],
            tuple(inputs),
            _tensors(match["outputs"], rng),
            options,
            _PROFILES[match["profile"] or ""],
            _tensors(match["between"] or "-", rng),
        )


def _option(text: str) -> object:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return text
    return tuple(value) if isinstance(value, list) else value


def _tensors(text: str, rng: np.random.Generator) -> tuple[CaseTensor, ...]:
    return tuple(filter(None, (_tensor(words, rng, ()) for words in text.split(", "))))


def _tensor(
    text: str, rng: np.random.Generator, before: Sequence[CaseTensor | None]
) -> CaseTensor | None:
    """Return a tensor; the scales of a bias depend on the tensors before it."""
    if text == "-":
        return None
    match = _TENSOR.fullmatch(text)
    if match is None:
        raise InternalError(f"this is no tensor of a conformance case: {text}")
    shape = tuple(map(int, filter(None, match["shape"].split(","))))
    dtype = match["dtype"]
    axis = int(match["axis"]) if match["axis"] else None
    match match["scales"] or "":
        case "random":
            scales = tuple(map(float32, rng.uniform(0.002, 0.02, shape[axis or 0])))
        case "product":
            first, second = (item for item in before if item and item.scales)
            products = itertools.product(first.scales, second.scales)
            scales = tuple(a * b for a, b in products)
        case listed:
            values = map(float, filter(None, listed.split("|")))
            scales = tuple(map(float32, values))
    points = tuple(map(int, filter(None, (match["zero_points"] or "").split("|"))))
    if len(points) == 1:
        points *= len(scales)
    data: Array | None = None
    if match["data"]:
        data = _constant(match["data"], dtype, shape, rng)
    value_range: tuple[int, int] | None = None
    if match["low"]:
        value_range = (int(match["low"]), int(match["high"]))
    return CaseTensor(
        shape=shape,
        dtype=dtype,
        scales=scales,
        zero_points=points,
        axis=axis,
        data=data,
        is_state=bool(match["state"]),
        value_range=value_range,
    )


def _constant(
    text: str, dtype: str, shape: Sequence[int], rng: np.random.Generator
) -> Array:
    """Return generated or listed values; int4 has two per byte, low half first."""
    if text == "normal":
        return np.asarray(rng.normal(size=shape), dtype)
    if not text.startswith("random"):
        kind = float if dtype == "float32" else int
        values = np.array(list(map(kind, text.split())), dtype)
        return np.resize(values, shape)
    low, high = map(int, text.removeprefix("random ").split(".."))
    values = rng.integers(low, high + 1, shape)
    if dtype != "int4":
        return np.asarray(values, dtype)
    halves = np.resize(values.astype(np.uint8) & 0xF, round_up(values.size, 2))
    return np.asarray(halves[::2] | halves[1::2] << 4)


@cache
def case_table() -> CaseTable:
    """Return the case generators by operator name."""
    sections = read_sections(__file__, ".txt")
    for module in door_modules(lambda extension: extension.conformance_cases):
        sections |= module.CASES
    return {op: partial(_cases, text) for op, text in sections.items()}


def conformance_cases(op: str) -> Iterator[ConformanceCase]:
    cases = case_table().get(op)
    return iter(()) if cases is None else cases()
