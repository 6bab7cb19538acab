"""Outputs of sums on RISC-V vectors: sums are scaled, narrowed, limited and stored.

Layers that round twice: VSMUL with rounding mode rnu is the doubling high multiply of
the definition. VNCLIP with rnu rounds halves up but the definition rounds them away
from zero, so 1 is first subtracted from negative values (`AWAY`). If the lower clamp
is not below the zero point (ReLU), this affects only clamped values and is omitted.

Layers that round once: VMULH is the product's high word, and the definition's 31 -
shift bits are 32 bits and a rounded shift; `s` is one less than the right shift.

Factors of 53 bits (`EXACT`) are two words, and the product has 96 bits, of which only
the high word is needed:

                 | sum * high, high word | sum * high, low word |
               + |  sign of the carried  | sum * low, high word |  "carried"

The carry is the top bit of half the sum of the low words, which VAADDU computes.

VNCLIP and VSADD saturate to 16 bits, beyond every clamp. Obligations: multipliers are
not negative, sums with bias fit 32 bits, and shifts are large enough
(`layer_endings.supports_requantize`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from firmwright.base.dtypes import (
    FLOAT32,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT16,
    UINT32,
    Array,
    DType,
)
from firmwright.ir.tir.builder import (
    ArithExpr,
    call_intrinsic,
    immediate,
    maximum,
    minimum,
    select,
)
from firmwright.ir.tir.intrinsic import Intrinsic, inputs
from firmwright.kernels.elementwise import value_intrinsic
from firmwright.kernels.isa.c_numbers import equal, greater, less
from firmwright.kernels.isa.instruction import RegisterClass, RegisterPlace
from firmwright.kernels.isa.rvv import reinterpret, riscv_row
from firmwright.kernels.isa.vectors import float_to_int, nearest_even
from firmwright.kernels.program import VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.kernels.vector_text import vector_text

UPWARD, AWAY, ONCE = range(3)
"""Values of the immediate operand `rounding`."""
NOMINAL_LANES = 32
"""32-bit lanes of eight registers of 128 bits, which the cost model assumes."""

_Scale: TypeAlias = Callable[
    [
        VectorBuilder,
        int,
        Sequence[VirtualRegister],
        Callable[[str], VirtualRegister],
    ],
    None,
]


@dataclass(frozen=True, slots=True)
class Ending:
    """Outputs that are computed from sums with their bias, and stored.

    The table `q` has the bias of all channels, then `factors`; the table `s` has right
    shifts. `element` is the function of one output: of `sum`, of the factors, of
    `right` and of `settings`. `scale(k, lanes, sums, factor)` changes sums to what is
    shifted, where `factor` returns the lanes of a factor. Without them, sums are stored
    as they are, and there is no table `s`.
    """

    name: str
    input: DType
    output: DType
    factors: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    element: Intrinsic | None = None
    scale: _Scale | None = None
    instructions: int = 2
    requires: str = "rvv"

    def text(
        self, sums: Sequence[tuple[str, str]], lmul: int, at: str, vl: str = "vl"
    ) -> str:
        """Return C that stores the outputs of sums of the channels from `at` on.

        `sums` are variables of `lmul` registers, with their targets.
        """
        lanes = 4 * lmul
        k = VectorBuilder("ending", vl)
        place = RegisterPlace(RegisterClass.VECTOR, INT32, lanes)
        values = [k.variable(name, place) for name, _ in sums]
        targets = [k.pointer(target, self.output, "w") for _, target in sums]
        store = riscv_row(lanes, self.output, f"vse{self.output.bits}_v")
        if self.scale is None:
            for value, target in zip(values, targets, strict=True):
                k.store(store, target[0], value)
            return vector_text(k.build_vectors())

        def factor(name: str) -> VirtualRegister:
            row = self.factors.index(name) + 1
            start = f"{row} * channels" if row > 1 else "channels"
            table = k.pointer(f"q + {start} + {at}", INT32)
            return k.named(name, riscv_row(lanes, INT32, "vle32_v"), table[0])

        self.scale(k, lanes, values, factor)
        shifts = k.pointer(f"s + {at}", UINT16)
        shift = k.named("shift", riscv_row(lanes, UINT16, "vle16_v"), shifts[0])
        zero_point = k.number("zero_point") if "zero_point" in self.settings else None
        for value, target in zip(values, targets, strict=True):
            row = riscv_row(lanes, INT16, "vnclip_wv")
            short = k.named(f"short_{value.name}", row, value, shift)
            limited = limit_lanes(k, short, lanes, zero_point, self.output)
            k.store(store, target[0], limited)
        return vector_text(k.build_vectors())

    def portable(self, stride: str = "channels") -> str:
        """Return the C of one output, of channel c of the `stride` that `q` has."""
        if self.element is None:
            return "sum"
        arguments = {"sum": "sum", "right": "s[c]"}
        for row, name in enumerate(self.factors, 1):
            start = f"{row} * {stride}" if row > 1 else stride
            arguments[name] = f"q[{start} + c]"
        names = (operand.name for operand in self.element.operands)
        given = ", ".join(arguments.get(name, name) for name in names)
        return f"@{self.element.name}(\n            {given})"

    def results(
        self,
        sums: Array,
        factors: Sequence[Array],
        right: Array,
        settings: Sequence[Array],
    ) -> Array:
        """Return the outputs in numpy."""
        if self.element is None:
            return sums.astype(self.output.np)
        values = {"sum": sums, "right": right}
        values |= zip(self.factors, factors, strict=True)
        values |= zip(self.settings, settings, strict=True)
        names = [operand.name for operand in self.element.operands]
        result: Array = self.element.meaning(*(values[name] for name in names))
        return result


def pixel_sums(pixels: int) -> list[tuple[str, str]]:
    """Return the variables of the sums of `pixels` pixels, and their targets."""
    sums = [("sum0", "y + at")]
    for p in range(1, pixels):
        sums.append((f"sum{p}", f"y + {p} * channels + at"))
    return sums


def limit_lanes(
    k: VectorBuilder,
    short: VirtualRegister,
    lanes: int,
    zero_point: VirtualRegister | int | None,
    dtype: DType = INT8,
    name: str = "",
) -> VirtualRegister:
    """Add the zero point to the variable `short`, clamp it, return it as `dtype`.

    Bytes are the variable `name`, if it is given.
    """
    halves = partial(riscv_row, lanes, INT16)
    low, high = k.number("low"), k.number("high")
    if zero_point is not None:
        k(halves("vsadd_vx"), short, zero_point, into=short)
    with k.when(k(greater, low, dtype.min)):
        k(halves("vmax_vx"), short, low, into=short)
    with k.when(k(less, high, dtype.max)):
        k(halves("vmin_vx"), short, high, into=short)
    if dtype == INT16:
        return short
    row = riscv_row(lanes, INT8, "vnclip_wx")
    return k.named(name, row, short, 0) if name else k(row, short, 0)


# ---- one or two roundings ------------------------------------------------------------


def _scale_by_word(
    k: VectorBuilder,
    lanes: int,
    values: Sequence[VirtualRegister],
    factor: Callable[[str], VirtualRegister],
) -> None:
    words = partial(riscv_row, lanes, INT32)
    rounding = k.number("rounding")
    multiplier = factor("multiplier")
    with k.when(k(equal, rounding, ONCE)):
        for value in values:
            k(words("vmulh_vv"), value, multiplier, into=value)
    with k.otherwise():
        for value in values:
            k(words("vsmul_vv"), value, multiplier, into=value)
    with k.when(k(equal, rounding, AWAY)):
        for value in values:
            sign = k(words("vsra_vx"), value, 31)
            k(words("vadd_vv"), value, sign, into=value)


def _requantized(dtype: DType, **x: ArithExpr) -> ArithExpr:
    """Return the result of `sum`, of which `right` is the shift in the table."""
    factor, right = x["multiplier"], x["right"]
    once = call_intrinsic("requantize_once", [x["sum"], factor, -1 - right], INT32)
    twice = call_intrinsic("requantize_twice", [x["sum"], factor, 0 - right], INT32)
    moved = select(x["rounding"].equal(ONCE), once, twice)
    if "zero_point" in x:
        moved = moved + x["zero_point"]
    return minimum(maximum(moved, x["low"]), x["high"]).cast(dtype)


def _by_word(name: str, dtype: DType, settings: tuple[str, ...]) -> Ending:
    operands = inputs(INT32, "sum", "multiplier", "right", *settings)
    element = value_intrinsic(
        f"rvv_requantized{name}",
        operands,
        partial(_requantized, dtype),
        "Requantizes a sum with its bias.",
    )
    factors = ("multiplier",)
    return Ending(name, dtype, dtype, factors, settings, element, _scale_by_word, 8)


BYTES = _by_word("", INT8, ("zero_point", "low", "high", "rounding"))
HALVES = _by_word("_int16", INT16, ("low", "high", "rounding"))
SUMS = {
    INT8: Ending("_sums", INT8, INT32),
    INT16: Ending("_sums_int16", INT16, INT32),
}
"""Endings that leave sums to a schedule, by the type of inputs."""


# ---- factors of float32 --------------------------------------------------------------


def _scale_by_float(
    k: VectorBuilder,
    lanes: int,
    values: Sequence[VirtualRegister],
    factor: Callable[[str], VirtualRegister],
) -> None:
    words, floats = (partial(riscv_row, lanes, dtype) for dtype in (INT32, FLOAT32))
    as_float = reinterpret(lanes, INT32, FLOAT32)
    scale = k.named("scale", as_float, factor("scale_bits"))
    for value in values:
        product = k(floats("vfmul_vv"), k(floats("vfcvt_f_x_v"), value), scale)
        k(words("vfcvt_x_f_even_v"), product, into=value)


def _scaled_by_float(**x: ArithExpr) -> ArithExpr:
    scale = call_intrinsic("float_of_bits", [x["scale_bits"]], FLOAT32)
    nearest = float_to_int(x["sum"].cast(FLOAT32) * scale, nearest_even)
    short = minimum(maximum(nearest, INT16.min), INT16.max) + x["zero_point"]
    return minimum(maximum(short, x["low"]), x["high"]).cast(INT8)


_FLOAT_SETTINGS = ("zero_point", "low", "high")
FLOAT_BYTES = Ending(
    "_float",
    INT8,
    INT8,
    ("scale_bits",),
    _FLOAT_SETTINGS,
    value_intrinsic(
        "rvv_requantized_float",
        inputs(INT32, "sum", "scale_bits", *_FLOAT_SETTINGS),
        _scaled_by_float,
        "Multiplies a sum with its bias by the float of some bits.",
    ),
    _scale_by_float,
    9,
    "rvvf",
)

# ---- exact factors -------------------------------------------------------------------


def _scale_by_two_words(
    k: VectorBuilder,
    lanes: int,
    values: Sequence[VirtualRegister],
    factor: Callable[[str], VirtualRegister],
) -> None:
    words, unsigned = (
        partial(riscv_row, lanes, INT32),
        partial(riscv_row, lanes, UINT32),
    )
    as_unsigned = reinterpret(lanes, INT32, UINT32)
    as_signed = reinterpret(lanes, UINT32, INT32)
    high, low = factor("high_factor"), factor("low_factor")
    scale, rounding = k.number("scale"), k.number("rounding")
    for number, value in enumerate(values):
        with k.when(k(greater, scale, 1)):
            k(words("vmul_vx"), value, scale, into=value)
        product = k(words("vmul_vv"), value, high)
        bottom = k.named(f"bottom{number}", as_unsigned, product)
        carried = k.named(f"carried{number}", words("vmulh_vv"), value, low)
        with k.when(k(equal, rounding, AWAY)):
            k(words("vadd_vv"), carried, k(words("vsra_vx"), value, 31), into=carried)
        k(words("vmulh_vv"), value, high, into=value)
        half = k(unsigned("vaaddu_vv"), bottom, k(as_unsigned, carried))
        carry = k(as_signed, k(unsigned("vsrl_vx"), half, 31))
        k(words("vadd_vv"), value, carry, into=value)
        k(words("vadd_vv"), value, k(words("vsra_vx"), carried, 31), into=value)


def _scaled_exactly(**x: ArithExpr) -> ArithExpr:
    """Return the result of `sum` times a factor of 2^32 `high_factor` + `low_factor`.

    Sums that round away from zero lose a unit of 2^-32 if they are negative.
    """
    total = x["sum"] * x["scale"]
    wide, away = total.cast(INT64), x["rounding"].equal(AWAY).cast(INT32)
    carried = ((wide * x["low_factor"].cast(INT64)) >> 32).cast(INT32)
    carried = carried - away * (total < 0).cast(INT32)
    product = wide * x["high_factor"].cast(INT64) + carried.cast(INT64)
    right = x["right"].cast(INT64)
    half = ArithExpr(immediate(1, INT64)) << (right - 1)
    moved = ((product >> 32) + half) >> right
    return minimum(maximum(moved.cast(INT32), x["low"]), x["high"]).cast(INT16)


_EXACT_SETTINGS = ("scale", "low", "high", "rounding")
_EXACT_FACTORS = ("high_factor", "low_factor")
EXACT = Ending(
    "_exact",
    INT16,
    INT16,
    _EXACT_FACTORS,
    _EXACT_SETTINGS,
    value_intrinsic(
        "rvv_requantized_exact",
        inputs(INT32, "sum", *_EXACT_FACTORS, "right", *_EXACT_SETTINGS),
        _scaled_exactly,
        "Multiplies a sum with its bias by a factor of two words.",
    ),
    _scale_by_two_words,
    18,
)

INTRINSICS = tuple(
    ending.element for ending in (BYTES, HALVES, EXACT, FLOAT_BYTES) if ending.element
)
