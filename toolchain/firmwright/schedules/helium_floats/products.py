"""Matrix products and n-dimensional convolutions on Helium (product_runs.py)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from textwrap import indent

from firmwright.base.dtypes import FLOAT32, INT32, DType
from firmwright.base.rounding import divide_up
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.tir.intrinsic import Intrinsic
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.product_runs import (
    PRODUCT_ROWS,
    ProductRuns,
    build_conv,
    build_product,
    conv_configs,
    product_configs,
)
from firmwright.schedules.schedule_factories import helium_float_schedule

_C = read_sections(__file__)
_LANES, _BLOCK = 4, 16
_FLOAT_SUM = "ADD_PRODUCT_F32"
_FLOAT_SUM_MACRO = f"""\
#define {_FLOAT_SUM}(sum, lanes, factor) vaddq_f32(sum, vmulq_n_f32(lanes, factor))"""


@dataclass(frozen=True, slots=True)
class _Form:
    """The C of an element type: `add` adds a product to a vector of sums."""

    add: str
    instructions: int
    vector: str
    macros: tuple[str, ...] = (KEEP_STORES,)


_FORMS = {
    FLOAT32: _Form(_FLOAT_SUM, 2, "float32x4_t", (KEEP_STORES, _FLOAT_SUM_MACRO)),
    INT32: _Form(
        "vmlaq_n_s32",
        1,
        "int32x4_t",
    ),
}

# ---- the micro-kernel ----------------------------------------------------------------


def _executed(form: _Form, args: Sequence[int]) -> int:
    *_, rows, depth, count = args
    if rows > 1:
        step = 6 + PRODUCT_ROWS * form.instructions
        return 7 + divide_up(count, _LANES) * (26 + step * depth)
    blocks, rest = divmod(count, _BLOCK)
    instructions = 16 + blocks * (20 + (9 + 4 * form.instructions) * depth)
    if rest > _LANES:
        instructions += 26 + (7 + 3 * form.instructions) * depth
        rest -= 3 * _LANES
    if rest > 0:
        instructions += 14 + (5 + form.instructions) * depth
    return instructions


def _takes_rows(rows: int, count: int) -> bool:
    return rows > 1 and count < _BLOCK and (rows >= PRODUCT_ROWS or count <= _LANES)


HELIUM_RUNS = ProductRuns("mve", _takes_rows)


def _products(dtype: DType) -> Intrinsic:
    form = _FORMS[dtype]
    names = {
        "element": dtype.c_type,
        "short": dtype.short.replace("i", "s"),
        "lanes": form.vector,
        "add": form.add,
    }
    text = fill_text(_C["gnu"], **names, **_blocks(names))
    count = partial(_executed, form)
    return HELIUM_RUNS.intrinsic(dtype, "mvefp", text, count, form.macros)


def _blocks(names: Mapping[str, str]) -> dict[str, str]:
    """Return the C of four vectors of a row, and of a vector of four rows."""
    short = names["short"]
    adjacent = f"vldrwq_{short}({{}})"
    gathered = f"vldrwq_gather_shifted_offset_{short}({{}}, {{}})"

    def block(step: str, form: str, *more: str) -> str:
        starts = ["q", *(f"q + {_LANES * n}{step}" for n in (1, 2, 3))]
        vectors = {
            f"vector{n}": form.format(start, *more) for n, start in enumerate(starts)
        }
        return indent(fill_text(_C["block"], **names, **vectors), "    ")

    def steps(vector: str) -> str:
        return indent(fill_text(_C["steps"], **names, vector=vector), "    ")

    whole, rest = adjacent.format("q"), gathered.format("q", "from0")
    rows = fill_text(_C["rows"], **names, whole=steps(whole), rest=steps(rest))
    return {
        "adjacent": block("", adjacent),
        "gathered": block(" * b_lane", gathered, "from"),
        "rows": indent(rows, "        "),
    }


INTRINSICS = tuple(map(_products, _FORMS))
SCHEDULES = (
    helium_float_schedule(
        "helium.reduction.products",
        "reduction",
        configs=product_configs,
        build=partial(build_product, HELIUM_RUNS),
    ),
    helium_float_schedule(
        "helium.conv_nd.rows",
        "conv_nd",
        configs=conv_configs,
        build=partial(build_conv, HELIUM_RUNS),
    ),
)
