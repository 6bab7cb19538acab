"""The micro-kernels that a transform of vectors has, and their texts.

A transform of real samples has a first stage, which loads them in digit-reversed order,
further stages in place, and bins. Its arithmetic gives what these compute and in which
portable C; an instruction set gives their text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import indent

from firmwright.base.dtypes import UINT16, DType
from firmwright.base.text_sections import fill_text
from firmwright.ir.tir.intrinsic import Intrinsic, Meaning, immediates, pointers

_FIXED_INSTRUCTIONS = 10
"""Instructions of a call outside its loop."""


@dataclass(frozen=True, slots=True)
class FftKernels:
    """The micro-kernels of a transform: of the first and the other stages, and bins."""

    first_stage: Intrinsic
    stage: Intrinsic
    bins: Intrinsic


@dataclass(frozen=True, slots=True)
class KernelText:
    """C for an instruction set, and the instructions of its loop for all lanes."""

    gnu: str
    loop_instructions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FftArithmetic:
    """What the micro-kernels of a transform of one element type compute.

    Attributes:
        name: The part of the kernels' names after the instruction set.
        dtype: The element type.
        lanes: The complex numbers to which the instructions of loops refer.
        order_elements: Elements of the table of places for each block.
        first_settings: Immediate operands of the first stage, `blocks` among them.
        factors: The name of the table of the bins.
        meanings: What the first stage, a stage and the bins compute, in numpy.
        portable: The same in portable C.
        ends_instructions: Instructions of the first and the last bin.
    """

    name: str
    dtype: DType
    lanes: int
    order_elements: int
    first_settings: tuple[str, ...]
    factors: str
    meanings: tuple[Meaning, Meaning, Meaning]
    portable: tuple[str, str, str]
    ends_instructions: int = 0


def make_fft_kernels(
    arithmetic: FftArithmetic, feature: str, texts: Sequence[KernelText]
) -> FftKernels:
    """Return the micro-kernels for the cores with a feature.

    `texts` are those of the first stage, the other stages and the bins.
    """
    first, other, last = texts
    return FftKernels(
        _first_stage(arithmetic, feature, first),
        _stage(arithmetic, feature, other),
        _bins(arithmetic, feature, last),
    )


def _first_stage(own: FftArithmetic, feature: str, text: KernelText) -> Intrinsic:
    blocks_at = 3 + own.first_settings.index("blocks")

    def count(args: Sequence[int]) -> int:
        turns = -(-args[blocks_at] // own.lanes)
        return _FIXED_INSTRUCTIONS + turns * text.loop_instructions

    return Intrinsic(
        f"{feature}_{own.name}_first_stage",
        (
            *pointers(own.dtype, "w", numbers=2),
            *pointers(own.dtype, samples=2),
            *pointers(UINT16, order=own.order_elements),
            *immediates(*own.first_settings),
        ),
        own.meanings[0],
        own.portable[0],
        "The first stage of a transform of samples in digit-reversed order.",
        requires=feature,
        text={"gnu": text.gnu},
        count=count,
    )


def _stage(own: FftArithmetic, feature: str, text: KernelText) -> Intrinsic:
    def count(args: Sequence[int]) -> int:
        turns = -(-args[2] * args[3] // own.lanes)
        return _FIXED_INSTRUCTIONS + turns * text.loop_instructions

    return Intrinsic(
        f"{feature}_{own.name}_stage",
        (
            *pointers(own.dtype, "rw", numbers=2),
            *pointers(own.dtype, factors=2),
            *immediates("size", "blocks"),
        ),
        own.meanings[1],
        own.portable[1],
        "A stage of a transform, of radix 4.",
        requires=feature,
        text={"gnu": text.gnu},
        count=count,
    )


def _bins(own: FftArithmetic, feature: str, text: KernelText) -> Intrinsic:
    def count(args: Sequence[int]) -> int:
        turns = -(-args[3] // (2 * own.lanes))
        fixed = _FIXED_INSTRUCTIONS + own.ends_instructions
        return fixed + turns * text.loop_instructions

    return Intrinsic(
        f"{feature}_{own.name}_bins",
        (
            *pointers(own.dtype, "w", bins=2),
            *pointers(own.dtype, **{"numbers": 2, own.factors: 2}),
            *immediates("count"),
        ),
        own.meanings[2],
        own.portable[2],
        "The bins of real samples, given the transform of their pairs.",
        requires=feature,
        text={"gnu": text.gnu},
        count=count,
    )


def insert_lines(text: str, **parts: Sequence[str]) -> str:
    """Return a text whose words $PART are the indented lines of `parts`."""
    texts = {part: indent("\n".join(lines), "    ") for part, lines in parts.items()}
    return fill_text(text, **texts)


def text_of_parts(text: str, parts: Sequence[int], **values: object) -> list[str]:
    """Return the text for each part of a butterfly, whose number is its word $q."""
    return [fill_text(text, q=part, **values) for part in parts]
