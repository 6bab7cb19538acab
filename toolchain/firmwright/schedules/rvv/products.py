"""Matrix products and n-dimensional convolutions of int32 on RISC-V vectors.

The micro-kernel is that of product_runs.py, also of float32: four runs share their
vectors, and floats are rounded after each product and each sum.
"""

from collections.abc import Sequence
from functools import partial
from textwrap import indent

from firmwright.base.dtypes import INT32, DType
from firmwright.base.rounding import divide_up
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.intrinsic import Intrinsic
from firmwright.kernels.isa.rvv import register_group
from firmwright.ops.schedule import Schedule, ScheduleConfig
from firmwright.schedules.product_runs import (
    PRODUCT_ROWS,
    ProductRuns,
    build_conv,
    build_product,
    conv_configs,
    product_configs,
)

_C = read_sections(__file__)
_GROUPS = {1: 8, PRODUCT_ROWS: 4}
"""The registers of a variable, by the rows at once."""
_RUNS = ProductRuns("rvv", lambda rows, count: rows >= PRODUCT_ROWS)


def _text(dtype: DType) -> str:
    many, one = (indent(_of_rows(dtype, rows), " " * 4) for rows in (PRODUCT_ROWS, 1))
    return fill_text(_C["text"], rows=PRODUCT_ROWS, many=many, one=indent(one, " " * 4))


def _of_rows(dtype: DType, rows: int) -> str:
    """Return C that adds the products of some rows, with lanes at any distance."""
    group = register_group(dtype, 4 * _GROUPS[rows])
    return fill_text(
        _C["lanes"],
        adjacent=indent(_block(dtype, rows, f"__riscv_vle32_v_{group}(q, vl)"), "    "),
        apart=indent(
            _block(dtype, rows, f"__riscv_vlse32_v_{group}(q, 4 * b_lane, vl)"), "    "
        ),
    )


def _block(dtype: DType, rows: int, load: str) -> str:
    registers = f"m{_GROUPS[rows]}"
    group = register_group(dtype, 4 * _GROUPS[rows])
    vector = f"v{dtype.c_type.removesuffix('_t')}{registers}_t"
    zero = f"__riscv_vmv_v_x_{group}(0, vl)"
    if dtype.is_float:
        vector, zero = f"vfloat32{registers}_t", f"__riscv_vfmv_v_f_{group}(0.0f, vl)"
    starts, products, finish, sums = list[str](), list[str](), list[str](), list[str]()
    for row in range(rows):
        name = f"sum{row}"
        place = f"y + {row} * y_row + at" if row else "y + at"
        factor = f"p[{row} * a_row]" if row else "p[0]"
        starts.append(
            f"{vector} {name} = adds != 0 ? __riscv_vle32_v_{group}({place}, vl) : "
            f"{zero};"
        )
        products.append(f"{name} = {_sum(dtype, group, name, factor)};")
        finish.append(f"__riscv_vse32_v_{group}({place}, {name}, vl);")
        sums.append(f'"+vr"({name})')
    return fill_text(
        _C["block"],
        m=registers,
        type=dtype.c_type,
        vector=vector,
        start=indent("\n".join(starts), " " * 4),
        load=load,
        products=indent("\n".join(products), " " * 8),
        sums=", ".join(sums),
        finish=indent("\n".join(finish), " " * 4),
    )


def _sum(dtype: DType, group: str, total: str, factor: str) -> str:
    """Return the C of a sum plus the product of the lanes and a number."""
    if not dtype.is_float:
        return f"__riscv_vmacc_vx_{group}({total}, {factor}, lanes, vl)"
    product = f"__riscv_vfmul_vf_{group}(lanes, {factor}, vl)"
    return f"__riscv_vfadd_vv_{group}({total}, {product}, vl)"


def _executed(dtype: DType, args: Sequence[int]) -> int:
    """Return the instructions with vectors of 128 bits."""
    *_, rows, depth, count = args
    at_once = rows if rows == PRODUCT_ROWS else 1
    blocks = divide_up(count, 4 * _GROUPS[at_once]) * (rows // at_once)
    product = 3 if dtype.is_float else 2
    return 10 + blocks * (10 + 5 * at_once + depth * (4 + at_once * product))


def products_intrinsic(dtype: DType, feature: str) -> Intrinsic:
    count = partial(_executed, dtype)
    return _RUNS.intrinsic(dtype, feature, _text(dtype), count)


def _configs(dtype: DType, op: OpCall) -> Sequence[ScheduleConfig]:
    find = conv_configs if op.op == "conv_nd" else product_configs
    return find(op) if op.output.dtype == dtype else ()


_BUILDS = {"conv_nd": build_conv, "reduction": build_product}


def product_schedules(
    dtype: DType, feature: str
) -> tuple[Schedule[ScheduleConfig], ...]:
    return tuple(
        Schedule(
            f"rvv.{op}.products_{dtype.name}",
            op,
            frozenset({feature}),
            partial(_configs, dtype),
            partial(build, _RUNS),
        )
        for op, build in _BUILDS.items()
    )


INTRINSICS = (products_intrinsic(INT32, "rvv"),)
SCHEDULES = product_schedules(INT32, "rvv")
