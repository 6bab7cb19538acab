"""Helper functions of kernels: intrinsics, extremes, saturation, unaligned access.

All are `static inline`. An intrinsic uses assembly if the CPU feature's macro is set,
else C.
"""

import re
from collections.abc import Mapping, Sequence

from firmwright.base.dtypes import DType
from firmwright.base.errors import InternalError
from firmwright.codegen.c_names import ModelNames
from firmwright.codegen.c_writer import format_comment, format_lines
from firmwright.codegen.used_helpers import UsedHelpers
from firmwright.ir import tir
from firmwright.ir.tir.intrinsic import Intrinsic, Operand
from firmwright.kernels.isa.rv32_packed import sclip32, uclip32

FEATURE_TESTS: Mapping[str, str] = {
    "dsp": "defined(__ARM_FEATURE_DSP)",
    "fpu": (
        "defined(__ARM_FP) && defined(__ARM_ARCH_ISA_THUMB) && "
        "!defined(__ARM_ARCH_ISA_ARM)"
    ),
    "gnu": "defined(__GNUC__)",
    "mla": "defined(__ARM_ARCH_ISA_THUMB) && __ARM_ARCH_ISA_THUMB >= 2",
    "mve": "defined(__ARM_FEATURE_MVE)",
    "mvefp": "defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)",
    "sat": "defined(__ARM_FEATURE_SAT)",
    "thumb1": (
        "defined(__ARM_ARCH_ISA_THUMB) && __ARM_ARCH_ISA_THUMB == 1 && "
        "!defined(__clang__)"
    ),
    "thumb2": "defined(__ARM_ARCH_ISA_THUMB) && __ARM_ARCH_ISA_THUMB >= 2",
    "rvm": "defined(__riscv_mul)",
    "rvp": (
        "(defined(__riscv_dsp) || defined(__riscv_xxldsp) || "
        "defined(FIRMWRIGHT_RISCV_P))"
    ),
    "rvv": "defined(__riscv_v_intrinsic)",
    "rvvf": "defined(__riscv_v_intrinsic) && defined(__riscv_zve32f)",
    "xtensa": "defined(__XTENSA_CALL0_ABI__) && !defined(__clang__)",
}
"""Preprocessor condition for each CPU feature in an intrinsic's `requires`."""

_FEATURE_HEADERS = {
    **dict.fromkeys(("mve", "mvefp"), "arm_mve.h"),
    **dict.fromkeys(("rvv", "rvvf"), "riscv_vector.h"),
}
_MATH_FUNCTIONS = (
    "acos|acosh|asin|asinh|atan|atan2|atanh|ceil|cos|cosh|erf|erfc|exp|expm1|fabs|floor|fma|fmod"
    "|log|log1p|pow|rint|round|sin|sinh|sqrt|tan|tanh"
)
_MATH = re.compile(rf"\b(?:(?:{_MATH_FUNCTIONS})f?(?=\()|INFINITY|NAN|is\w+)\b")
_STRING = re.compile(r"\bmem(?:cpy|set|move|cmp)\b")


def system_headers(used: UsedHelpers, *, copies: bool = False) -> list[str]:
    """Return the standard headers that the model needs, in conventional order."""
    bodies: list[str] = []
    for item in used.intrinsics.values():
        bodies += [item.portable, *item.text.values()]
    text = "\n".join(bodies)
    math = used.math or _MATH.search(text)
    string = copies or used.loads or used.stores or _STRING.search(text)
    chosen = (
        ("math.h", math),
        ("stddef.h", True),
        ("stdint.h", True),
        ("string.h", string),
    )
    return [name for name, is_needed in chosen if is_needed]


def library_headers(used: UsedHelpers) -> list[str]:
    return sorted({item.header for item in used.intrinsics.values() if item.header})


def used_features(used: UsedHelpers, *, inline_asm: bool) -> list[str]:
    """Return the sorted CPU features for which a used intrinsic has assembly."""
    if not inline_asm:
        return []
    items = [item for item in used.intrinsics.values() if item.text]
    for item in items:
        if item.text.keys() != {"gnu"}:
            kinds = ", ".join(sorted(item.text))
            raise InternalError(f"the assembly of {item.name} is for {kinds}")
    required = {item.requires for item in items} | used.vectors
    unknown = sorted(required - FEATURE_TESTS.keys())
    if unknown:
        feature = unknown[0]
        raise InternalError(
            f"an intrinsic's assembly needs the unknown feature {feature!r}"
        )
    if used.saturations:
        required.add(_saturating(used))
    return sorted(required)


def _saturating(used: UsedHelpers) -> str:
    """Return the feature that selects saturation code: RISC-V's if used, or Arm's."""
    features = {item.requires for item in used.intrinsics.values()}
    return next((each for each in ("rvp", "rvm") if each in features), "sat")


def gcc_flags(
    used: UsedHelpers,
    kernels: Sequence[tir.PrimFunc],
    *,
    inline_asm: bool,
    pointers_as_vectors: bool = False,
) -> tuple[str, ...]:
    """Return the flags that GCC needs for this code in addition to the board's.

    The first comment of NAME.c contains them with their reasons; builds, packages and
    the metadata read them there. With `pointers_as_vectors`, GCC would store pointers
    to many tensors as vectors.
    """
    flags: list[str] = []
    intrinsics = used.intrinsics.values()
    if inline_asm and any(item.text and item.result is None for item in intrinsics):
        flags.append("-fomit-frame-pointer")
    if any(func.attrs.get("disable_scheduling") for func in kernels):
        flags.append("-fno-schedule-insns")
    if any(func.attrs.get("keep_block_order") for func in kernels):
        flags.append("-fno-reorder-blocks")
    if pointers_as_vectors:
        flags.append("-fno-tree-slp-vectorize")
    return tuple(flags)


def template_values(
    used: UsedHelpers, names: ModelNames, *, inline_asm: bool
) -> dict[str, object]:
    """Return the values for the templates of compiler macros and helpers."""

    def declaration(item: Intrinsic, name: str) -> str:
        aliases = None if item.symbol else names
        params = [_declare_operand(operand, aliases) for operand in item.operands]
        return f"{name}({', '.join(params) or 'void'})"

    # Functions that the C of an intrinsic calls are not called by its assembly.
    may_be_unused = any(item.text and item.calls for item in used.intrinsics.values())
    may_be_unused |= bool(used.vectors)
    return {
        "used": used,
        "may_be_unused": inline_asm and may_be_unused,
        "features": used_features(used, inline_asm=inline_asm),
        "feature_tests": FEATURE_TESTS,
        "feature_headers": _FEATURE_HEADERS,
        "saturating": _saturating(used),
        "clip": _packed_clip,
        "names": names,
        "declaration": declaration,
        "result_type": lambda item: item.result.c_type if item.result else "void",
        "wrap": lambda text: format_lines(text, 0),
        "c_body": format_lines,
        "c_comment": format_comment,
        "saturation_doc": _saturation_doc,
    }


def _packed_clip(dtype: DType) -> str:
    """Return the assembly of packed RISC-V that limits %1 to a type, as %0."""
    instr, bits = (sclip32, dtype.bits - 1) if dtype.signed else (uclip32, dtype.bits)
    return instr.asm.format(d="%0", a="%1", bits=bits)


def _saturation_doc(dtype: DType, shift: int) -> list[str]:
    """Return the comment of a function that divides by a power of two and saturates.

    Requantizations add a constant beforehand, which readers meet as one number in every
    kernel.
    """
    unit = 1 << shift
    example = f" For the zero point {dtype.min} this is {dtype.min * unit + unit // 2}."
    return [
        f"x / {unit}, rounded down and saturated. Requantizations have added",
        (
            f"zero_point * {unit} + {unit // 2} to x: the output's zero point, and half"
            " a unit for"
        ),
        f"rounding to nearest.{example if dtype.min else ''}",
    ]


def _declare_operand(operand: Operand, names: ModelNames | None) -> str:
    """Return a parameter's declaration; without `names` for an external function."""
    kind = operand.dtype.c_type
    if names is not None and operand.kind in ("out", "inout"):
        return f"{kind} *{operand.name}_at"
    if operand.kind != "ptr":
        return f"{kind} {operand.name}"
    if names is not None and operand.dtype.size_bytes > 1:
        kind = names.alias(operand.dtype)
    qualifier = "const " if operand.access == "r" else ""
    return f"{qualifier}{kind} *{operand.name}"
