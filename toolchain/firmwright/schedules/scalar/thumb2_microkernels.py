"""GEMM micro-kernels of Armv7-M without the DSP extension: LDRSB and MLA."""

from firmwright.base.text_sections import fill_text, read_sections
from firmwright.schedules.asm_macros import string_lines
from firmwright.schedules.scalar import microkernels
from firmwright.schedules.scalar.microkernels import (
    MicrokernelFamily,
    ScalarMicrokernel,
)

_C = read_sections(__file__)

# Eight sums, two pointers, a count and three temporaries take all fourteen registers.
# gcc reloads asm operands into r0-r7 only, so everything except the sums has a fixed
# register, and the sums are initialized inside the statement. A two-row shape holds its
# weights and loads one column after the other; other shapes hold the column elements,
# at most two, and load weights. 2x4 and 4x2 take 14 instructions for 8 products. clang
# reserves a register, so there the count is in memory, at two instructions more per
# iteration.


_TEMPORARIES = {"v": "r9", "p": "r10"}


def _loads(shape: ScalarMicrokernel) -> tuple[str, int]:
    return ("ldrsb", 1) if shape.layout == "bytes" else ("ldrsh", 2)


def _column(shape: ScalarMicrokernel, register: str, pixel: int) -> str:
    """Return the load of element `pixel` of a step; that of pixel 0, last, advances."""
    load, size = _loads(shape)
    if pixel == 0:
        return f"{load} {register}, [%[x]], #{size * shape.step}"
    if shape.layout == "tiles":
        return f"{load} {register}, [%[x], #{size * pixel}]"
    return f"{load} {register}, [%[x], %[p{pixel}]]"


def _weight(shape: ScalarMicrokernel, register: str) -> str:
    load, size = _loads(shape)
    return f"{load} {register}, [%[w]], #{size}"


def _mla(shape: ScalarMicrokernel, row: int, pixel: int, a: str, b: str) -> str:
    total = f"%[c{shape.place(row, pixel)}]"
    return f"mla {total}, {a}, {b}, {total}"


def _step(shape: ScalarMicrokernel, *, is_narrow: bool = False) -> list[str]:
    """Return the assembly of one step.

    If `is_narrow`, that of a single column uses one register fewer.
    """
    u, v, p = "%[u]", "%[v]", "%[p]"
    lines = []
    if shape.rows <= 2 and shape.pixels > 2:
        weights = (u, v)[: shape.rows]
        lines += [_weight(shape, register) for register in weights]
        for pixel in (*range(1, shape.pixels), 0):
            lines.append(_column(shape, p, pixel))
            lines += [_mla(shape, row, pixel, w, p) for row, w in enumerate(weights)]
        return lines
    columns = (u, v)[: shape.pixels]
    lines += [_column(shape, columns[at], at) for at in reversed(range(shape.pixels))]
    # With one column a temporary is free: two loads side by side take a cycle less.
    temporaries = (p,) if shape.pixels == 2 or is_narrow else (p, v)
    for first in range(0, shape.rows, len(temporaries)):
        rows = list(zip(range(first, shape.rows), temporaries, strict=False))
        lines += [_weight(shape, register) for _, register in rows]
        for row, register in rows:
            for at, column in enumerate(columns):
                lines.append(_mla(shape, row, at, register, column))
    return lines


def _begin(shape: ScalarMicrokernel) -> list[str]:
    lines = []
    for row in range(shape.rows):
        first = f"%[c{shape.place(row, 0)}]"
        lines.append(f"ldr {first}, [%[u], #{4 * row}]")
    for row in range(shape.rows):
        first = f"%[c{shape.place(row, 0)}]"
        for pixel in range(1, shape.pixels):
            lines.append(f"mov %[c{shape.place(row, pixel)}], {first}")
    return lines


def _macro(step: list[str]) -> str:
    return " \\\n".join(["#define STEP", *string_lines(step)])


def _text(shape: ScalarMicrokernel) -> str:
    step = _step(shape)
    code = "\n".join(step)
    narrow = _step(shape, is_narrow=True)
    second = '[v] "=&r"(v),' if shape.pixels == 1 else ""
    declared: list[str] = []
    outputs: list[str] = []
    for name, register in _TEMPORARIES.items():
        if f"%[{name}]" not in code:
            continue
        declared.append(f'register int32_t {name} FIXED("{register}");')
        if name == "p" or not second:
            outputs.append(f', [{name}] "=&r"({name})')
    offsets = microkernels.column_offsets(shape)
    if not offsets:
        declared.append("(void)pixel;")
    if second:
        declared.append("(void)v; /* used by gcc only */")
    return fill_text(
        _C["frame"],
        unroll=shape.unroll,
        temporaries="\n".join(declared),
        narrow=_macro(narrow),
        wide=_macro(step),
        second=second,
        begin="\n".join(string_lines(_begin(shape))),
        uses="    " + " ".join(["STEP"] * shape.unroll),
        sums=microkernels.sum_outputs(shape),
        outputs="".join(outputs),
        inputs=", ".join(offsets),
    )


MLA_FAMILY = MicrokernelFamily(
    "mla",
    "mla",
    shapes=(
        ("bytes", 2, 4),
        ("bytes", 2, 3),
        ("bytes", 4, 2),
        ("bytes", 8, 1),
        ("bytes", 4, 1),
        ("tiles", 2, 4),
    ),
    most_unrolled=8,
    reach=4095,
    text=_text,
    step_instructions=lambda shape: len(_step(shape)),
    loop_instructions=2,
)

INTRINSIC_MAKERS = microkernels.microkernel_makers(MLA_FAMILY)
