"""GEMM micro-kernels of RV32IM: LB, MUL and ADD."""

from firmwright.base.text_sections import fill_text, read_sections
from firmwright.schedules.asm_macros import string_lines
from firmwright.schedules.scalar import microkernels
from firmwright.schedules.scalar.microkernels import (
    MicrokernelFamily,
    ScalarMicrokernel,
)

_C = read_sections(__file__)

# Sixteen sums, the column elements of a step, a weight and a product take 22 of the 28
# registers available to compilers; pointers and the end address take three more. A step
# of four rows times four columns is 40 instructions for 16 products; the last column's
# product overwrites the weight. Temporaries are named registers, which keeps the number
# of operands small.

_COLUMNS = ("t0", "t1", "t2", "t3")
_WEIGHT, _PRODUCT = "t4", "t5"


def _size(shape: ScalarMicrokernel) -> int:
    return shape.dtype.size_bytes


def _step(shape: ScalarMicrokernel) -> list[str]:
    """Return the assembly of one step along the depth; X and W are its byte offsets."""
    load = "lb" if shape.layout == "bytes" else "lh"
    lines = []
    for pixel in range(shape.pixels):
        if shape.layout == "tiles":
            place = f'" #X "+{_size(shape) * pixel}'
        else:
            place = f'%[p{pixel}]+" #X "' if pixel else '" #X "'
        lines.append(f"{load} {_COLUMNS[pixel]}, {place}(%[x])")
    for row in range(shape.rows):
        lines.append(f'{load} {_WEIGHT}, " #W "+{_size(shape) * row}(%[w])')
        for pixel in range(shape.pixels):
            product = _WEIGHT if pixel == shape.pixels - 1 else _PRODUCT
            total = f"%[c{shape.place(row, pixel)}]"
            lines.append(f"mul {product}, {_WEIGHT}, {_COLUMNS[pixel]}")
            lines.append(f"add {total}, {total}, {product}")
    return lines


def _begin(shape: ScalarMicrokernel) -> list[str]:
    lines = []
    for row in range(shape.rows):
        first = f"%[c{shape.place(row, 0)}]"
        lines.append(f"lw {first}, {4 * row}(%[start])")
        for pixel in range(1, shape.pixels):
            lines.append(f"mv %[c{shape.place(row, pixel)}], {first}")
    return lines


def _text(shape: ScalarMicrokernel) -> str:
    body = string_lines(_step(shape))
    offsets = microkernels.column_offsets(shape)
    x_step = _size(shape) * shape.step
    w_step = _size(shape) * shape.rows
    steps = [f"STEP({x_step * u}, {w_step * u})" for u in range(shape.unroll)]
    clobbers = [*_COLUMNS[: shape.pixels], _WEIGHT]
    if shape.pixels > 1:
        clobbers.append(_PRODUCT)
    return fill_text(
        _C["frame"],
        ahead=shape.step,
        unused="" if offsets else "(void)pixel;\n",
        macro=" \\\n".join(["#define STEP(X, W)", *body]),
        begin="\n".join(string_lines(_begin(shape))),
        uses="    " + " ".join(steps),
        x_bytes=x_step * shape.unroll,
        w_bytes=w_step * shape.unroll,
        sums=microkernels.sum_outputs(shape),
        offsets="".join(f", {item}" for item in offsets),
        clobbers=", ".join(f'"{name}"' for name in clobbers),
    )


RV32M_FAMILY = MicrokernelFamily(
    "rvm",
    "rvm",
    shapes=(
        ("bytes", 4, 4),
        ("bytes", 4, 3),
        ("bytes", 8, 2),
        ("bytes", 16, 1),
        ("bytes", 8, 1),
        ("bytes", 4, 1),
        ("tiles", 4, 4),
    ),
    most_unrolled=4,
    reach=2047,
    text=_text,
    step_instructions=lambda shape: len(_step(shape)),
    loop_instructions=3,
)

INTRINSIC_MAKERS = microkernels.microkernel_makers(RV32M_FAMILY)
