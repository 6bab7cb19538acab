"""Helper functions for kernels: intrinsics, minima and maxima, saturation, unaligned access.

All are `static inline`. An intrinsic with assembly for a CPU feature uses the assembly if the
feature's macro is set, and portable C otherwise.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from firmwright.base.dtypes import INT8, DType
from firmwright.base.errors import InternalError
from firmwright.codegen.c_names import ModelNames
from firmwright.codegen.c_writer import CWriter
from firmwright.codegen.expr_printer import UsedHelpers
from firmwright.ir.tir.intrinsic import Intrinsic, Operand

FEATURE_TESTS: Mapping[str, str] = {
    "dsp": "defined(__ARM_FEATURE_DSP)",
    "fpu": "defined(__ARM_FP) && defined(__ARM_ARCH_ISA_THUMB) && !defined(__ARM_ARCH_ISA_ARM)",
    "mla": "defined(__ARM_ARCH_ISA_THUMB) && __ARM_ARCH_ISA_THUMB >= 2",
    "mve": "defined(__ARM_FEATURE_MVE)",
    "mvefp": "defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)",
    "sat": "defined(__ARM_FEATURE_SAT)",
    "thumb1": "defined(__ARM_ARCH_ISA_THUMB) && __ARM_ARCH_ISA_THUMB == 1 && !defined(__clang__)",
    "thumb2": "defined(__ARM_ARCH_ISA_THUMB) && __ARM_ARCH_ISA_THUMB >= 2",
    "rvm": "defined(__riscv_mul)",
}
"""Preprocessor condition for each CPU feature in an intrinsic's `requires`."""

_FEATURE_HEADERS = {"mve": "arm_mve.h", "mvefp": "arm_mve.h"}
_MATH_FUNCTIONS = (
    "acos|acosh|asin|asinh|atan|atan2|atanh|ceil|cos|cosh|erf|erfc|exp|expm1|fabs|floor|fma|fmod"
    "|log|log1p|pow|rint|round|sin|sinh|sqrt|tan|tanh"
)
_MATH = re.compile(rf"\b(?:(?:{_MATH_FUNCTIONS})f|INFINITY|NAN|is\w+)\b")
_STRING = re.compile(r"\bmem(?:cpy|set|move|cmp)\b")


def intrinsic_bodies(used: UsedHelpers) -> str:
    return "\n".join(
        body for item in used.intrinsics.values() for body in (item.portable, *item.text.values())
    )


def system_headers(used: UsedHelpers, *, copies: bool = False) -> list[str]:
    """Return the standard headers that the model needs, in conventional order."""
    text = intrinsic_bodies(used)
    math = used.math or _MATH.search(text)
    string = copies or used.loads or used.stores or _STRING.search(text)
    chosen = (("math.h", math), ("stddef.h", True), ("stdint.h", True), ("string.h", string))
    return [name for name, wanted in chosen if wanted]


def library_headers(used: UsedHelpers) -> list[str]:
    return sorted({item.header for item in used.intrinsics.values() if item.header})


def used_features(used: UsedHelpers, *, inline_asm: bool) -> list[str]:
    """Return the sorted CPU features for which a used intrinsic has assembly."""
    if not inline_asm:
        return []
    found = {item.requires for item in used.intrinsics.values() if item.text}
    unknown = sorted(found - FEATURE_TESTS.keys())
    if unknown:
        raise InternalError(f"an intrinsic's assembly needs the unknown feature {unknown[0]!r}")
    return sorted(found | ({_saturating(used)} if used.saturations else set()))


def _saturating(used: UsedHelpers) -> str:
    """Return the feature that selects saturation code: RISC-V's if other code uses it, or Arm's."""
    return "rvm" if any(item.requires == "rvm" for item in used.intrinsics.values()) else "sat"


def print_feature_macros(out: CWriter, names: ModelNames, wanted: Sequence[str]) -> None:
    """Print one macro for each feature, defined as 1 where its assembly may be used."""
    if not wanted:
        return
    allowed, forbidden = names.macro("inline_asm"), names.macro("no_inline_asm")
    out.line()
    out.comment(["Large assembly blocks need the registers that only optimized builds leave free."])
    out.line(f"#if defined(__GNUC__) && defined(__OPTIMIZE__) && !defined({forbidden})")
    _define_if(out, allowed)
    for feature in wanted:
        out.line()
        out.line(f"#if {allowed} && {FEATURE_TESTS[feature]}")
        _define_if(out, names.macro("asm", feature), _FEATURE_HEADERS.get(feature, ""))


def _define_if(out: CWriter, macro: str, header: str = "") -> None:
    """Define `macro` as 1 in the open conditional and as 0 otherwise, and close it."""
    out.line(f"#define {macro} 1")
    if header:
        out.line(f"#include <{header}>")
    out.line("#else")
    out.line(f"#define {macro} 0")
    out.line("#endif")


def print_helpers(out: CWriter, names: ModelNames, used: UsedHelpers, *, inline_asm: bool) -> None:
    _HelperPrinter(out, names, used, inline_asm).helpers()


@dataclass(frozen=True, slots=True)
class _HelperPrinter:
    out: CWriter
    names: ModelNames
    used: UsedHelpers
    inline_asm: bool
    printed: set[str] = field(default_factory=set)

    def helpers(self) -> None:
        for name, (op, dtype) in self.used.extremes.items():
            self._extreme(name, op, dtype.c_type)
        for name, (dtype, shift) in self.used.saturations.items():
            self._saturation(name, dtype, shift)
        for name, dtype in self.used.loads.items():
            self._load(name, dtype)
        for name, dtype in self.used.stores.items():
            self._store(name, dtype)
        self._externs()
        for intrinsic in self.used.intrinsics.values():
            if not intrinsic.symbol:
                if self.inline_asm:
                    self._definitions(intrinsic)
                self._intrinsic(intrinsic)

    def _function(self, signature: str, kind: str = "inline") -> AbstractContextManager[None]:
        return self.out.function(f"{self.names.macro(kind)} {signature}")

    def _externs(self) -> None:
        found = [i for i in self.used.intrinsics.values() if i.symbol and not i.header]
        if found:
            self.out.line()
        for item in found:
            params = ", ".join(_declare_operand(o, o.dtype.c_type) for o in item.operands)
            self.out.line(f"{_result_type(item)} {item.symbol}({params or 'void'});")

    def _extreme(self, name: str, op: str, kind: str) -> None:
        self.out.line()
        if op == "clamp":
            with self._function(f"{kind} {name}({kind} x, {kind} low, {kind} high)"):
                self.out.line(f"const {kind} raised = x > low ? x : low;")
                self.out.line("return raised < high ? raised : high;")
            return
        with self._function(f"{kind} {name}({kind} a, {kind} b)"):
            self.out.line(f"return a {'<' if op == 'min' else '>'} b ? a : b;")

    def _saturation(self, name: str, dtype: DType, shift: int) -> None:
        feature = _saturating(self.used) if self.inline_asm else ""
        asm: list[str] = []
        if feature == "rvm":
            asm = _riscv_saturation(dtype, shift) if dtype.bits == INT8.bits else []
        elif feature:
            asm = _arm_saturation(dtype, shift)
        out, kind, low, high = self.out, dtype.c_type, dtype.min, dtype.max
        out.line()
        with self._function(f"{kind} {name}(int32_t x)"):
            if asm:
                out.raw(f"#if {self.names.macro('asm', feature)}")
                for line in [*asm, f"return ({kind})result;"]:
                    out.line(line)
                out.raw("#else")
            value = "value" if shift else "x"
            if shift:
                out.line(f"const int32_t value = x >> {shift};")
            clamped = f"{value} < {low} ? {low} : {value} > {high} ? {high} : {value}"
            out.line(f"return ({kind})({clamped});")
            if asm:
                out.raw("#endif")

    def _load(self, name: str, dtype: DType) -> None:
        self.out.line()
        self.out.comment([f"Reads {dtype.name} at any address."])
        with self._function(f"{dtype.c_type} {name}(const uint8_t *p)"):
            self.out.line(f"{dtype.c_type} value;")
            self.out.line(f"{self.names.macro('copy')}(&value, p, sizeof value);")
            self.out.line("return value;")

    def _store(self, name: str, dtype: DType) -> None:
        self.out.line()
        self.out.comment([f"Writes {dtype.name} at any address."])
        with self._function(f"void {name}(uint8_t *p, {dtype.c_type} value)"):
            self.out.line(f"{self.names.macro('copy')}(p, &value, sizeof value);")

    def _definitions(self, item: Intrinsic) -> None:
        """Print the macros that the assembly of `item` uses, unless an earlier intrinsic did."""
        new = [text for text in item.definitions if text not in self.printed]
        if not new:
            return
        self.printed.update(new)
        self.out.line()
        self.out.raw(f"#if {self.names.macro('asm', item.requires)}")
        for line in "\n\n".join(new).splitlines():
            self.out.raw(line)
        self.out.raw("#endif")

    def _intrinsic(self, item: Intrinsic) -> None:
        params = ", ".join(self._parameter(operand) for operand in item.operands)
        self.out.line()
        self.out.comment([item.doc])
        name = self.names.c(item.name)
        if item.rare:
            has_assembly = item.text and self.inline_asm
            if has_assembly:
                self.out.raw(f"#if !{self.names.macro('asm', item.requires)}")
            with self._function(f"{_result_type(item)} {name}_rare({params})", "kernel"):
                self._verbatim(item.rare)
            self.out.raw("#endif" if has_assembly else "")
        with self._function(f"{_result_type(item)} {name}({params or 'void'})"):
            for operand in item.operands:
                if operand.kind in ("out", "inout"):
                    value = f" = *{operand.name}_at" if operand.kind == "inout" else ""
                    self.out.line(f"{operand.dtype.c_type} {operand.name}{value};")
            arguments = ", ".join(operand.name for operand in item.operands)
            self._body(item, f"\nreturn {name}_rare({arguments});" if item.rare else "")
            for operand in item.operands:
                if operand.kind in ("out", "inout"):
                    self.out.line(f"*{operand.name}_at = {operand.name};")

    def _body(self, item: Intrinsic, ending: str) -> None:
        if not (item.text and self.inline_asm):
            self._verbatim(item.portable + ending)
            return
        if set(item.text) != {"gnu"}:
            kinds = ", ".join(sorted(item.text))
            raise InternalError(f"the assembly of {item.name} is for {kinds}")
        self.out.raw(f"#if {self.names.macro('asm', item.requires)}")
        self._verbatim(item.text["gnu"])
        self.out.raw("#else")
        self._verbatim(item.portable + ending)
        self.out.raw("#endif")

    def _verbatim(self, text: str) -> None:
        for line in text.strip("\n").splitlines():
            self.out.line(line)

    def _parameter(self, operand: Operand) -> str:
        kind = operand.dtype.c_type
        if operand.kind in ("out", "inout"):
            return f"{kind} *{operand.name}_at"
        is_wide = operand.kind == "ptr" and operand.dtype.size_bytes > 1
        return _declare_operand(operand, self.names.alias(operand.dtype) if is_wide else kind)


def _result_type(item: Intrinsic) -> str:
    return item.result.c_type if item.result else "void"


def _declare_operand(operand: Operand, kind: str) -> str:
    if operand.kind != "ptr":
        return f"{kind} {operand.name}"
    return f"{'const ' if operand.access == 'r' else ''}{kind} *{operand.name}"


def _arm_saturation(dtype: DType, shift: int) -> list[str]:
    instruction = "ssat" if dtype.signed else "usat"
    shifted = f", asr #{shift}" if shift else ""
    return [
        "int32_t result;",
        f'__asm__("{instruction} %0, #{dtype.bits}, %1{shifted}" : "=r"(result) : "r"(x));',
    ]


def _riscv_saturation(dtype: DType, shift: int) -> list[str]:
    """Return code that saturates to 8 bits with one branch, taken for values in range."""
    # A value in range has no bits above the width of the type after the minimum is subtracted. Any
    # other value is replaced by all ones or zeros, depending on its sign, and an exclusive or turns
    # that into a limit.
    steps = [
        f"srai %0, %2, {shift}",
        *([f"addi %1, %0, {-dtype.min}"] if dtype.signed else []),
        f"srli %1, {'%1' if dtype.signed else '%0'}, {dtype.bits}",
        "beqz %1, 1f",
        "srai %0, %0, 31",
        "xori %0, %0, %3" if dtype.signed else "not %0, %0",
    ]
    return [
        "int32_t result;",
        "uint32_t beyond;",
        "__asm__(",
        *(f'    "{step}\\n\\t"' for step in steps),
        '    "1:"',
        '    : "=&r"(result), "=&r"(beyond)',
        f'    : "r"(x), "i"({dtype.max}));',
    ]
