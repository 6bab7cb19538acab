"""Vectors of Helium for loops with independent iterations: four lanes of 32 bits."""

from collections.abc import Callable
from textwrap import indent

from firmwright.base.dtypes import BOOL, INT32, UINT32, DType
from firmwright.kernels.vector_loops import VectorTarget
from firmwright.kernels.vector_writer import Lanes, NotVectorizableError, VectorWriter

_LANES = 4
_UNSIGNED = {"gt": "hi", "ge": "cs", "eq": "eq", "ne": "ne"}
_BINARY = {
    "add": "vaddq",
    "sub": "vsubq",
    "mul": "vmulq",
    "mulh": "vmulhq",
    "min": "vminq",
    "max": "vmaxq",
    "and": "vandq",
    "or": "vorrq",
    "xor": "veorq",
}
_WITH_NUMBER = frozenset({"add", "sub", "mul"})
_OPERATORS = {"and": "&", "or": "|", "xor": "^"}

_KEEP_STORES = '__asm__ volatile("" : : "m"(*(const int8_t(*)[16])({})));'
"""Stands before predicated stores, as KEEP_STORES does in micro-kernels."""


def _kind(dtype: DType) -> str:
    return "s32" if dtype.signed else "u32"


def _access(stem: str, dtype: DType, mode: str, suffix: str) -> str:
    size = {8: "b", 16: "h", 32: "w"}[dtype.bits]
    return f"{stem}{size}q_{suffix}{mode}{_kind(dtype)}"


class HeliumWriter(VectorWriter):
    """Writes instructions of Helium."""

    def _lanes(self, dtype: DType, text: str) -> Lanes:
        c_type = "int32x4_t" if dtype.signed else "uint32x4_t"
        return Lanes(self.bind(c_type, text), dtype)

    def _predicate(self, text: str) -> Lanes:
        return Lanes(self.bind("mve_pred16_t", text), BOOL)

    def index(self, first: str) -> Lanes:
        lanes = self.bind("int32x4_t", "{0, 1, 2, 3}")
        return self._lanes(INT32, f"vaddq_n_s32({lanes}, {first})")

    def load(self, dtype: DType, address: str, stride: int) -> Lanes:
        if stride > 1:
            places = ", ".join(f"{stride * lane}u" for lane in range(_LANES))
            offsets = self.bind("uint32x4_t", f"{{{places}}}")
            return self.gather(dtype, address, Lanes(offsets, UINT32))
        mode, end = ("z_", f", {self.inside}") if self.inside else ("", "")
        name = _access("vldr", dtype, mode, "")
        return self._lanes(_widened(dtype), f"{name}({address}{end})")

    def gather(self, dtype: DType, address: str, indices: Lanes) -> Lanes:
        mode, end = ("z_", f", {self.inside}") if self.inside else ("", "")
        kind = "gather_offset_" if dtype.bits == 8 else "gather_shifted_offset_"
        name = _access("vldr", dtype, mode, kind)
        text = f"{name}({address}, {indices.text}{end})"
        return self._lanes(_widened(dtype), text)

    def store(self, dtype: DType, address: str, lanes: Lanes) -> None:
        if not self.inside:
            name = _access("vstr", dtype, "", "")
            self.lines.append(f"{name}({address}, {lanes.text});")
            return
        name = _access("vstr", dtype, "p_", "")
        self.lines.append(_KEEP_STORES.format(address))
        self.lines.append(f"{name}({address}, {lanes.text}, {self.inside});")

    def binary(self, op: str, a: Lanes, b: Lanes) -> Lanes:
        if op == "div" and a.dtype == INT32 and b.value is not None and b.value > 1:
            return self._quotient(a, b.value)
        if op not in _BINARY:
            raise NotVectorizableError
        name, kind = _BINARY[op], _kind(a.dtype)
        if b.is_number and op in _WITH_NUMBER:
            return self._lanes(a.dtype, f"{name}_n_{kind}({a.text}, {b.text})")
        other = self.spread(b) if b.is_number else b
        return self._lanes(a.dtype, f"{name}_{kind}({a.text}, {other.text})")

    def _quotient(self, a: Lanes, divisor: int) -> Lanes:
        """Return a / divisor, rounded toward zero, by a product."""
        factor, amount = reciprocal(divisor)
        is_large = factor > INT32.max
        number = factor - (1 << 32) if is_large else factor
        given = Lanes(str(number), INT32, is_number=True, value=number)
        product = self.binary("mulh", a, given)
        if is_large:
            product = self.binary("add", product, a)
        if amount:
            text = f"vshrq_n_s32({product.text}, {amount})"
            product = self._lanes(INT32, text)
        signs = self._lanes(INT32, f"vshrq_n_s32({a.text}, 31)")
        return self.binary("sub", product, signs)

    def shift(self, op: str, a: Lanes, b: Lanes) -> Lanes:
        kind, is_left = _kind(a.dtype), op == "shl"
        if b.value is not None:
            name = "vshlq_n" if is_left else "vshrq_n"
            return self._lanes(a.dtype, f"{name}_{kind}({a.text}, {b.value})")
        if b.is_number:
            amount = f"(int32_t)({b.text})"
            signed = amount if is_left else f"-{amount}"
            return self._lanes(a.dtype, f"vshlq_r_{kind}({a.text}, {signed})")
        amounts = self.reinterpret(b, INT32)
        if not is_left:
            amounts = self._lanes(INT32, f"vnegq_s32({amounts.text})")
        return self._lanes(a.dtype, f"vshlq_{kind}({a.text}, {amounts.text})")

    def compare(self, op: str, a: Lanes, b: Lanes) -> Lanes:
        """Return a predicate.

        gcc 12.2 ends with an internal error for some comparisons with a number.
        """
        other = self.spread(b) if b.is_number else b
        if a.dtype.signed:
            name = op
        elif op in _UNSIGNED:
            name = _UNSIGNED[op]
        else:
            a, other, name = other, a, {"lt": "hi", "le": "cs"}[op]
        return self._predicate(f"vcmp{name}q_{_kind(a.dtype)}({a.text}, {other.text})")

    def combine(self, op: str, a: Lanes, b: Lanes) -> Lanes:
        text = f"{a.text} {_OPERATORS[op]} {b.text}"
        return self._predicate(f"(mve_pred16_t)({text})")

    def invert(self, a: Lanes) -> Lanes:
        return self._predicate(f"(mve_pred16_t)~{a.text}")

    def select(self, condition: Lanes, a: Lanes, b: Lanes) -> Lanes:
        operands = f"{a.text}, {b.text}, {condition.text}"
        return self._lanes(a.dtype, f"vpselq_{_kind(a.dtype)}({operands})")

    def spread(self, number: Lanes) -> Lanes:
        return self._lanes(
            number.dtype, f"vdupq_n_{_kind(number.dtype)}({number.text})"
        )

    def reinterpret(self, a: Lanes, dtype: DType) -> Lanes:
        if a.dtype == dtype:
            return a
        name = f"vreinterpretq_{_kind(dtype)}_{_kind(a.dtype)}"
        return self._lanes(dtype, f"{name}({a.text})")

    def bit_length(self, a: Lanes) -> Lanes:
        zeros = self.reinterpret(self._lanes(UINT32, f"vclzq_u32({a.text})"), INT32)
        width = self.spread(Lanes("32", INT32, is_number=True, value=32))
        return self.binary("sub", width, zeros)


def reciprocal(divisor: int) -> tuple[int, int]:
    """Return a factor below 2^32 and a shift that divide int32 by a number above 1.

    The quotient of n is the high word of n times the factor, shifted right, plus 1 if n
    is negative (Granlund and Montgomery, Division by Invariant Integers, 1994).
    """
    for amount in range(32):
        factor = (1 << (32 + amount)) // divisor + 1
        if factor * divisor - (1 << (32 + amount)) <= 2 << amount:
            return factor, amount
    raise AssertionError("a factor of 32 bits is always precise enough")


def _widened(dtype: DType) -> DType:
    return INT32 if dtype.signed else UINT32


def _loop(
    name: str, end: str, extent: int | None, vector: Callable[[str], list[str]]
) -> list[str]:
    """Return a loop over whole vectors, then a vector of the elements that are left."""
    lines: list[str] = []
    if extent is None or extent >= _LANES:
        body = indent("\n".join(vector("")), "    ")
        head = f"for (; {name} <= {end} - {_LANES}; {name} += {_LANES}) {{"
        lines += [head, *body.splitlines(), "}"]
    if extent is None or extent % _LANES:
        body = indent("\n".join(vector("inside")), "    ")
        inside = f"vctp32q((uint32_t)({end} - {name}))"
        lines += [
            f"if ({name} < {end}) {{",
            f"    const mve_pred16_t inside = {inside};",
            *body.splitlines(),
            "}",
        ]
    return lines


HELIUM = VectorTarget("mve", HeliumWriter, _loop)
