"""Helper functions for kernels: intrinsics, minima and maxima, saturation, unaligned access.

All are `static inline`. An intrinsic with assembly for a CPU feature uses it if the feature macro
is set, and has a portable alternative.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

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
    "thumb1": ("defined(__ARM_ARCH_ISA_THUMB) && __ARM_ARCH_ISA_THUMB == 1 && !defined(__clang__)"),
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


def print_feature_macros(out: CWriter, names: ModelNames, wanted: Iterable[str]) -> None:
    """Print one macro per feature, 1 where its assembly may be used."""
    wanted = list(wanted)
    allowed = names.macro("inline_asm")
    if wanted:
        out.line()
        out.comment(
            ["Large assembly blocks need the registers that only optimized builds leave free."]
        )
        out.line(
            "#if defined(__GNUC__) && defined(__OPTIMIZE__) && "
            f"!defined({names.macro('no_inline_asm')})"
        )
        out.line(f"#define {allowed} 1")
        out.line("#else")
        out.line(f"#define {allowed} 0")
        out.line("#endif")
    for feature in wanted:
        macro = names.macro("asm", feature)
        out.line()
        out.line(f"#if {allowed} && {FEATURE_TESTS[feature]}")
        out.line(f"#define {macro} 1")
        if feature in _FEATURE_HEADERS:
            out.line(f"#include <{_FEATURE_HEADERS[feature]}>")
        out.line("#else")
        out.line(f"#define {macro} 0")
        out.line("#endif")


def print_helpers(out: CWriter, names: ModelNames, used: UsedHelpers, *, inline_asm: bool) -> None:
    for name, (op, dtype) in used.extremes.items():
        _extreme(out, names, name, op, dtype)
    for name, (dtype, shift) in used.saturations.items():
        feature = _saturating(used) if inline_asm else ""
        _saturation(out, names, name, dtype, shift, feature)
    for name, dtype in used.loads.items():
        _load(out, names, name, dtype)
    for name, dtype in used.stores.items():
        _store(out, names, name, dtype)
    _externs(out, used)
    printed: set[str] = set()
    for intrinsic in used.intrinsics.values():
        if not intrinsic.symbol:
            if inline_asm:
                _definitions(out, names, intrinsic, printed)
            _intrinsic(out, names, intrinsic, inline_asm=inline_asm)


def _externs(out: CWriter, used: UsedHelpers) -> None:
    found = [item for item in used.intrinsics.values() if item.symbol and not item.header]
    if found:
        out.line()
    for item in found:
        result = item.result.c_type if item.result else "void"
        params = ", ".join(_declared(operand) for operand in item.operands)
        out.line(f"{result} {item.symbol}({params or 'void'});")


def _declared(operand: Operand) -> str:
    kind = operand.dtype.c_type
    if operand.kind != "ptr":
        return f"{kind} {operand.name}"
    const = "const " if operand.access == "r" else ""
    return f"{const}{kind} *{operand.name}"


def _inline(names: ModelNames) -> str:
    return names.macro("inline")


def _extreme(out: CWriter, names: ModelNames, name: str, op: str, dtype: DType) -> None:
    kind, sign = dtype.c_type, "<" if op == "min" else ">"
    out.line()
    if op == "clamp":
        with out.function(f"{_inline(names)} {kind} {name}({kind} x, {kind} low, {kind} high)"):
            out.line(f"const {kind} raised = x > low ? x : low;")
            out.line("return raised < high ? raised : high;")
        return
    with out.function(f"{_inline(names)} {kind} {name}({kind} a, {kind} b)"):
        out.line(f"return a {sign} b ? a : b;")


def _arm_saturation(dtype: DType, shift: int) -> list[str]:
    instruction = "ssat" if dtype.signed else "usat"
    shifted = f", asr #{shift}" if shift else ""
    return [
        "int32_t result;",
        f'__asm__("{instruction} %0, #{dtype.bits}, %1{shifted}" : "=r"(result) : "r"(x));',
    ]


def _riscv_saturation(dtype: DType, shift: int) -> list[str]:
    """Return code that saturates to 8 bits with one branch, which values in range do not take.

    A value in range has no bits above the width of the type after the minimum is subtracted. Any
    other value is replaced by all ones or zeros, depending on its sign, and an exclusive or turns
    that into a limit.
    """
    beyond = ["xori %0, %0, %3"] if dtype.signed else ["not %0, %0"]
    steps = [
        f"srai %0, %2, {shift}",
        *([f"addi %1, %0, {-dtype.min}"] if dtype.signed else []),
        f"srli %1, {'%1' if dtype.signed else '%0'}, {dtype.bits}",
        "beqz %1, 1f",
        "srai %0, %0, 31",
        *beyond,
    ]
    lines = [f'    "{step}\\n\\t"' for step in steps]
    return [
        "int32_t result;",
        "uint32_t beyond;",
        "__asm__(",
        *lines,
        '    "1:"',
        '    : "=&r"(result), "=&r"(beyond)',
        f'    : "r"(x), "i"({dtype.max}));',
    ]


def _saturation(
    out: CWriter, names: ModelNames, name: str, dtype: DType, shift: int, feature: str
) -> None:
    text: list[str] = []
    if feature == "rvm":
        text = _riscv_saturation(dtype, shift) if dtype.bits == INT8.bits else []
    elif feature:
        text = _arm_saturation(dtype, shift)
    kind = dtype.c_type
    out.line()
    with out.function(f"{_inline(names)} {kind} {name}(int32_t x)"):
        if text:
            out.raw(f"#if {names.macro('asm', feature)}")
            for line in text:
                out.line(line)
            out.line(f"return ({kind})result;")
            out.raw("#else")
        value = "x"
        if shift:
            out.line(f"const int32_t value = x >> {shift};")
            value = "value"
        low, high = dtype.min, dtype.max
        clamped = f"{value} < {low} ? {low} : {value} > {high} ? {high} : {value}"
        out.line(f"return ({kind})({clamped});")
        if text:
            out.raw("#endif")


def _load(out: CWriter, names: ModelNames, name: str, dtype: DType) -> None:
    out.line()
    out.comment([f"Reads {dtype.name} at any address."])
    with out.function(f"{_inline(names)} {dtype.c_type} {name}(const uint8_t *p)"):
        out.line(f"{dtype.c_type} value;")
        out.line(f"{names.macro('copy')}(&value, p, sizeof value);")
        out.line("return value;")


def _store(out: CWriter, names: ModelNames, name: str, dtype: DType) -> None:
    out.line()
    out.comment([f"Writes {dtype.name} at any address."])
    with out.function(f"{_inline(names)} void {name}(uint8_t *p, {dtype.c_type} value)"):
        out.line(f"{names.macro('copy')}(p, &value, sizeof value);")


def _definitions(out: CWriter, names: ModelNames, item: Intrinsic, printed: set[str]) -> None:
    """Print the macros that the assembly of `item` uses, unless an earlier intrinsic did."""
    new = [text for text in item.definitions if text not in printed]
    if not new:
        return
    printed.update(new)
    out.line()
    out.raw(f"#if {names.macro('asm', item.requires)}")
    for line in "\n\n".join(new).splitlines():
        out.raw(line)
    out.raw("#endif")


def _intrinsic(out: CWriter, names: ModelNames, item: Intrinsic, *, inline_asm: bool) -> None:
    result = item.result.c_type if item.result else "void"
    params = ", ".join(_parameter(names, operand) for operand in item.operands)
    out.line()
    out.comment([item.doc])
    with out.function(f"{_inline(names)} {result} {names.c(item.name)}({params or 'void'})"):
        for operand in item.operands:
            if operand.kind == "out":
                out.line(f"{operand.dtype.c_type} {operand.name};")
            elif operand.kind == "inout":
                out.line(f"{operand.dtype.c_type} {operand.name} = *{operand.name}_at;")
        _body(out, names, item, inline_asm=inline_asm)
        for operand in item.operands:
            if operand.kind in ("out", "inout"):
                out.line(f"*{operand.name}_at = {operand.name};")


def _body(out: CWriter, names: ModelNames, item: Intrinsic, *, inline_asm: bool) -> None:
    if not (item.text and inline_asm):
        _verbatim(out, item.portable)
        return
    if set(item.text) != {"gnu"}:
        raise InternalError(f"the assembly of {item.name} is for {', '.join(sorted(item.text))}")
    out.raw(f"#if {names.macro('asm', item.requires)}")
    _verbatim(out, item.text["gnu"])
    out.raw("#else")
    _verbatim(out, item.portable)
    out.raw("#endif")


def _verbatim(out: CWriter, text: str) -> None:
    for line in text.strip("\n").splitlines():
        out.line(line)


def _parameter(names: ModelNames, operand: Operand) -> str:
    kind = operand.dtype.c_type
    match operand.kind:
        case "ptr":
            const = "const " if operand.access == "r" else ""
            pointee = names.alias(operand.dtype) if operand.dtype.size_bytes > 1 else kind
            return f"{const}{pointee} *{operand.name}"
        case "out" | "inout":
            return f"{kind} *{operand.name}_at"
        case _:
            return f"{kind} {operand.name}"
