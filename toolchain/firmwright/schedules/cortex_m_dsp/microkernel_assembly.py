"""Assembly of the DSP extension's GEMM micro-kernels: microkernel_assembly.txt."""

from dataclasses import dataclass, replace

from firmwright.base.text_sections import read_sections


@dataclass(frozen=True, slots=True)
class DspMicrokernel:
    """A micro-kernel's assembly and a form that needs one register fewer (`narrow`).

    `{wN}` and `{xN}` are the addresses of word N of weights and columns in a step. With
    `is_fresh`, the first step multiplies with SMUAD. The form `fpu` first loads the
    weights of all steps to float registers, so that the register of their address is
    free (`t`).
    """

    kind: str
    pairs: int
    pixels: int
    wide: str
    narrow: str
    instructions: int
    is_fresh: bool = False
    fpu: str = ""

    @property
    def words(self) -> int:
        return self.pairs * (2 if self.has_wide_weights or self.kind == "bytes" else 1)

    @property
    def column_words(self) -> int:
        return self.pixels * (2 if self.kind == "int4" else 1)

    @property
    def channels(self) -> int:
        return 2 * self.pairs

    @property
    def macro(self) -> str:
        return self.name.upper()

    @property
    def has_wide_weights(self) -> bool:
        return self.kind in ("wide", "fresh")

    @property
    def name(self) -> str:
        return f"{self.kind}_{self.channels}x{self.pixels}"


def _microkernel(
    kind: str, pairs: int, pixels: int, instructions: int
) -> DspMicrokernel:
    name = f"{kind}_{2 * pairs}x{pixels}"
    return DspMicrokernel(
        kind,
        pairs,
        pixels,
        _STEPS[name],
        _STEPS[f"{name}_narrow"],
        instructions,
        fpu=_STEPS.get(f"{name}_fpu", ""),
    )


_STEPS = read_sections(__file__, ".txt")
WIDE_2X4 = _microkernel("wide", 1, 4, 11)
FRESH_2X4 = replace(WIDE_2X4, kind="fresh", is_fresh=True)
MAC_2X4 = _microkernel("mac", 1, 4, 13)
PAIRED_2X4 = _microkernel("paired", 1, 4, 12)
PAIRED_4X2 = _microkernel("paired", 2, 2, 12)
PAIRED_8X1 = _microkernel("paired", 4, 1, 15)
INT4_2X4 = _microkernel("int4", 1, 4, 25)
BYTES_8X1 = _microkernel("bytes", 4, 1, 31)
COLUMN_MICROKERNELS = (WIDE_2X4, FRESH_2X4, MAC_2X4, PAIRED_2X4, PAIRED_4X2, PAIRED_8X1)
"""Micro-kernels over columns of int16 pairs."""
