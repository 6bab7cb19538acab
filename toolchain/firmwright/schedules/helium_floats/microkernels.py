"""float32 GEMM micro-kernels: a few vectors of channels times a few pixels."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32, Array
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, inputs, pointers
from firmwright.kernels.assembly import string_lines
from firmwright.kernels.contract import (
    BiasAdder,
    InterleavedChannels,
    Requantizer,
    TileContract,
)
from firmwright.kernels.elementwise import value_intrinsic
from firmwright.kernels.isa.instruction import RegisterClass, RegisterPlace
from firmwright.kernels.isa.mve_float import vaddq_f32
from firmwright.kernels.statement import wrap_assembly
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.kernels.vector_text import vector_text
from firmwright.ops.schedule import ScheduleConfig
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.helium.vector_ending import (
    VECTOR,
    ParameterTable,
    SumVector,
    VectorEnding,
    store_lanes,
)
from firmwright.schedules.helium_floats import accumulate_f32
from firmwright.schedules.helium_floats.accumulate_f32 import (
    ACCUMULATE_STYLES,
    AccumulateStyle,
)

_C = read_sections(__file__)

# `mve_f32_STYLE_VxP` multiplies element k of P adjacent columns, loaded to core
# registers, with element k of V vectors of four channels; then it adds the bias,
# applies the activation and stores. Products are summed in the order of the default
# loops, starting at 0. `mve_spread_f32_P` and `mve_zero_f32_P` write a run of one
# column.

_FLOATS = RegisterPlace(RegisterClass.VECTOR, FLOAT32, VECTOR)
MAX_PIXELS = 6
_ROUND = 4
_MAX_SUMS: Mapping[AccumulateStyle, int] = {"fused": 6, "separate": 4}
"""Maximum sums: two registers hold weights, and two more hold separate products."""
_VALUES = ("r4", "r5", "r6", "r8", "r9", "r10")


@dataclass(frozen=True, slots=True)
class VectorTile(ScheduleConfig):
    """Channel vectors and pixels of a micro-kernel: the configuration of a schedule."""

    vectors: int
    pixels: int

    @property
    def sums(self) -> int:
        return self.vectors * self.pixels

    @property
    def lanes(self) -> int:
        return VECTOR * self.vectors

    @property
    def contract(self) -> TileContract:
        return TileContract(
            self.lanes,
            self.pixels,
            InterleavedChannels(FLOAT32, (self.lanes,)),
            BiasAdder.EPILOGUE,
            Requantizer.MICROKERNEL,
        )

    def step(self, style: AccumulateStyle) -> list[str]:
        values = _VALUES[: self.pixels]
        if self.pixels == 1:
            lines = ["ldr r4, [%[x]], #4"]
        else:
            lines = [f"ldm %[x]!, {{{', '.join(values)}}}"]
        first = 8 - 2 * (2 if style == "separate" else 1)
        for vector in range(self.vectors):
            weights = f"q{first + vector % 2}"
            lines.append(f"vldrw.u32 {weights}, [%[w]], #16")
            for pixel, value in enumerate(values):
                total = f"%q[s{self.place(pixel, vector)}]"
                if style == "fused":
                    lines.append(f"vfma.f32 {total}, {weights}, {value}")
                    continue
                product = f"q{6 + (vector * self.pixels + pixel) % 2}"
                lines.append(f"vmul.f32 {product}, {weights}, {value}")
                lines.append(f"vadd.f32 {total}, {total}, {product}")
        return lines

    @property
    def sum_vectors(self) -> tuple[SumVector, ...]:
        """The sums of the same channels of all pixels, then those of others."""
        vectors = []
        for vector in range(self.vectors):
            for pixel in range(self.pixels):
                name = f"s{self.place(pixel, vector)}"
                vectors.append(SumVector(name, f"y{pixel}", VECTOR * vector))
        return tuple(vectors)

    def place(self, pixel: int, vector: int) -> int:
        return pixel * self.vectors + vector


VECTOR_TILES = (
    VectorTile(1, 6),
    VectorTile(1, 5),
    VectorTile(1, 4),
    VectorTile(1, 3),
    VectorTile(1, 2),
    VectorTile(1, 1),
    VectorTile(2, 3),
    VectorTile(2, 2),
    VectorTile(2, 1),
    VectorTile(3, 2),
    VectorTile(4, 1),
    VectorTile(6, 1),
)


def tiles_for_style(style: AccumulateStyle) -> list[VectorTile]:
    return [tile for tile in VECTOR_TILES if tile.sums <= _MAX_SUMS[style]]


def microkernel_name(style: AccumulateStyle, tile: VectorTile) -> str:
    return f"mve_f32_{style}_{tile.vectors}x{tile.pixels}"


def microkernel_instructions(
    style: AccumulateStyle, tile: VectorTile, steps: int, activation: int
) -> int:
    step = len(tile.step(style))
    rounds, rest = divmod(steps, _ROUND)
    product = 2 + tile.sums + rounds * (_ROUND * step + 1) + rest * (step + 1)
    limits = accumulate_f32.activation_instructions(activation)
    ending = tile.sums * (2 + limits) + tile.vectors
    return product + ending + 8 + tile.pixels


def _text(style: AccumulateStyle, tile: VectorTile) -> str:
    step = tile.step(style)
    sums = [f"s{i}" for i in range(tile.sums)]
    lines = [f"vmov.i32 %q[{name}], #0" for name in sums]
    lines += [
        "wls lr, %[rounds], 2f",
        "1:",
        *step * _ROUND,
        "le lr, 1b",
        "2: wls lr, %[rest], 4f",
        "3:",
        *step,
        "le lr, 3b",
        "4:",
    ]
    outputs = [f'[{name}] "=w"({name})' for name in sums]
    outputs += ['[w] "+r"(at_w)', '[x] "+r"(at_x)']
    vectors = ["q6", "q7"]
    if style == "separate":
        vectors = ["q4", "q5", *vectors]
    clobbered = (*_VALUES[: tile.pixels], "lr", *vectors, "cc", "memory")
    clobbers = [f'"{name}"' for name in clobbered]
    body = [
        "const float *at_w = w;",
        "const float *at_x = x;",
        f"float32x4_t {', '.join(sums)};",
        "__asm__ volatile(",
        *string_lines(lines),
        *wrap_assembly("    : ", outputs),
        f'    : [rounds] "r"(steps / {_ROUND}), [rest] "r"(steps % {_ROUND})',
        *wrap_assembly("    : ", clobbers, ");"),
        _ENDING.text(tile.sum_vectors),
    ]
    return "\n".join(body)


def _biased(**x: ArithExpr) -> ArithExpr:
    return accumulate_f32.activated(x["sum"] + x["bias"], x["activation"])


BIASED = value_intrinsic(
    "mve_biased_f32",
    (*inputs(FLOAT32, "sum", "bias"), *inputs(INT32, "activation")),
    _biased,
    "Adds the bias to a sum and applies the activation.",
)


def _finish(vector: str, target: str, lanes: str) -> str:
    k = VectorBuilder("biased")
    total, bias = k.variable(vector, _FLOATS), k.variable("bias", _FLOATS)
    k(vaddq_f32, total, bias, into=total)
    accumulate_f32.activate_lanes(k, total)
    store_lanes(k, total, target, FLOAT32, lanes)
    return vector_text(k.build_vectors())


_ENDING = VectorEnding(
    output=FLOAT32,
    tables=(ParameterTable("q", FLOAT32, ("bias",)),),
    settings=immediates("activation", "lanes"),
    element=BIASED,
    finish=_finish,
    instructions=lambda given: (
        2 + accumulate_f32.activation_instructions(given["activation"])
    ),
    requires="mvefp",
)


def _portable(style: AccumulateStyle, tile: VectorTile) -> str:
    names = ", ".join(f"y{p}" for p in range(tile.pixels))
    x = f"x[{tile.pixels} * i + p]"
    w = f"w[{tile.lanes} * i + c]"
    return fill_text(
        _C["portable"],
        pixels=tile.pixels,
        names=names,
        term=accumulate_f32.PORTABLE_ACCUMULATE[style].format(x=x, w=w, total="sum"),
        result=_ENDING.call("sum", is_single=True),
    )


def _meaning(
    style: AccumulateStyle, tile: VectorTile, names: Sequence[str], *args: Array
) -> Array | tuple[Array, ...]:
    given = dict(zip(names, args, strict=True))
    weights = np.asarray(given["w"], np.float32)
    values = np.asarray(given["x"], np.float32)
    a = weights.reshape(-1, 1, tile.lanes, *weights.shape[1:])
    b = values.reshape(-1, tile.pixels, 1, *values.shape[1:])
    with np.errstate(all="ignore"):
        sums = np.zeros(np.broadcast_shapes(a.shape[1:], b.shape[1:]), np.float32)
        for step in range(int(given["steps"])):
            sums = accumulate_f32.accumulate(style, sums, b[step], a[step])
        by_vector = sums.reshape(tile.pixels, tile.vectors, VECTOR, *sums.shape[2:])
        vectors = by_vector.swapaxes(0, 1).reshape(-1, VECTOR, *sums.shape[2:])
        return _ENDING.results(tile.sum_vectors, list(vectors), given)


def _block(style: AccumulateStyle, tile: VectorTile) -> Intrinsic:
    operands = (
        *pointers(FLOAT32, w=tile.lanes, x=tile.pixels),
        *_ENDING.operands(tile.sum_vectors),
        *immediates("steps"),
    )
    return Intrinsic(
        microkernel_name(style, tile),
        operands,
        partial(_meaning, style, tile, [operand.name for operand in operands]),
        _portable(style, tile),
        f"Products of {tile.lanes} channels times {tile.pixels} pixels.",
        requires="mvefp",
        text={"gnu": _text(style, tile)},
        definitions=(KEEP_STORES,),
        count=lambda args: microkernel_instructions(style, tile, args[-1], args[-3]),
        calls=_ENDING.calls,
    )


_SPREAD = _C["spread"]


def _column_text(pixels: int, *, zero: bool) -> str:
    names = {"pixels": pixels, "step": 4 * VECTOR * pixels}
    if zero:
        return fill_text(
            _SPREAD,
            **names,
            source="const float32x4_t zeros = vdupq_n_f32(0.0f);\n",
            load="",
            value="%q[zeros]",
            moving="",
            inputs='[zeros] "w"(zeros), ',
            clobbers="",
            tail="zeros",
        )
    return fill_text(
        _SPREAD,
        **names,
        source="const float *from = x;\n",
        value="q0",
        inputs="",
        clobbers='"q0", ',
        load='    "vldrw.u32 q0, [%[from]], #16\\n\\t"\n',
        moving='[from] "+r"(from), ',
        tail="vldrwq_z_f32(from, inside)",
    )


def _column_meaning(pixels: int, y: Array, *rest: Array) -> Array:
    *source, count = rest
    result = np.array(y)
    values = np.asarray(source[0])[:count] if source else 0
    result[: pixels * (count - 1) + 1 : pixels] = values
    return result


def _column(pixels: int, *, zero: bool) -> Intrinsic:
    value = "0.0f" if zero else "x[i]"
    source = () if zero else pointers(FLOAT32, x=1)
    values = "0" if zero else "those of x"
    return Intrinsic(
        f"mve_{'zero' if zero else 'spread'}_f32_{pixels}",
        (*pointers(FLOAT32, "rw", y=1), *source, *immediates("count")),
        partial(_column_meaning, pixels),
        f"for (int32_t i = 0; i < count; ++i) {{\n    y[{pixels} * i] = {value};\n}}",
        f"Every {pixels}th element from y on := {values}.",
        requires="mvefp",
        text={"gnu": _column_text(pixels, zero=zero)},
        count=lambda args: (
            5 + args[-1] // 4 * (3 + (not zero)) + 4 * (args[-1] % 4 > 0)
        ),
    )


def _all_intrinsics() -> Iterator[Intrinsic]:
    for style in ACCUMULATE_STYLES:
        for tile in tiles_for_style(style):
            yield _block(style, tile)
    for pixels in range(1, MAX_PIXELS + 1):
        yield _column(pixels, zero=False)
        yield _column(pixels, zero=True)


INTRINSICS = (BIASED, *_all_intrinsics())
