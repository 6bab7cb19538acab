"""Assembly of the GEMM micro-kernels of the DSP extension."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class DspMicrokernel:
    """A micro-kernel's assembly and a form that needs one register fewer (`narrow`).

    `{wN}` and `{xN}` are the addresses of word N of weights and columns in a step. With `is_fresh`,
    the first step multiplies with SMUAD.
    """

    kind: str
    pairs: int
    pixels: int
    wide: str
    narrow: str
    instructions: int
    is_fresh: bool = False

    @property
    def words(self) -> int:
        return self.pairs * (2 if self.has_wide_weights or self.kind == "bytes" else 1)

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


WIDE_2X4 = DspMicrokernel("wide", 1, 4, """
ldrd u, v, {w0}; ldrd p, q, {x0}
smlad c0, u, p; smlad c4, v, p; smlad c1, u, q; smlad c5, v, q
ldrd p, q, {x2}
smlad c2, u, p; smlad c6, v, p; smlad c3, u, q; smlad c7, v, q""", """
ldrd u, v, {w0}; ldr p, {x0}; smlad c0, u, p; smlad c4, v, p
ldr p, {x1}; smlad c1, u, p; smlad c5, v, p
ldr p, {x2}; smlad c2, u, p; smlad c6, v, p
ldr p, {x3}; smlad c3, u, p; smlad c7, v, p""", 11)  # fmt: skip

FRESH_2X4 = replace(WIDE_2X4, kind="fresh", is_fresh=True)

MAC_2X4 = DspMicrokernel("mac", 1, 4, """
ldr v, {w0}; ldrd p, q, {x0}; sxtb16 u, v; sxtb16 v, v, ror #8
smlad c0, u, p; smlad c4, v, p; smlad c1, u, q; smlad c5, v, q
ldrd p, q, {x2}
smlad c2, u, p; smlad c6, v, p; smlad c3, u, q; smlad c7, v, q""", """
ldr v, {w0}; ldr p, {x0}; sxtb16 u, v; sxtb16 v, v, ror #8
smlad c0, u, p; smlad c4, v, p
ldr p, {x1}; smlad c1, u, p; smlad c5, v, p
ldr p, {x2}; smlad c2, u, p; smlad c6, v, p
ldr p, {x3}; smlad c3, u, p; smlad c7, v, p""", 13)  # fmt: skip

PAIRED_2X4 = DspMicrokernel("paired", 1, 4, """
ldr v, {w0}; ldrd p, q, {x0}; sxtb16 u, v
smlad c0, u, p; smlad c4, v, p; smlad c1, u, q; smlad c5, v, q
ldrd p, q, {x2}
smlad c2, u, p; smlad c6, v, p; smlad c3, u, q; smlad c7, v, q""", """
ldr v, {w0}; ldr p, {x0}; sxtb16 u, v
smlad c0, u, p; smlad c4, v, p
ldr p, {x1}; smlad c1, u, p; smlad c5, v, p
ldr p, {x2}; smlad c2, u, p; smlad c6, v, p
ldr p, {x3}; smlad c3, u, p; smlad c7, v, p""", 12)  # fmt: skip

PAIRED_4X2 = DspMicrokernel("paired", 2, 2, """
ldrd u, v, {w0}; ldrd p, q, {x0}
smlad c2, u, p; smlad c3, u, q; sxtb16 u, u; smlad c0, u, p; smlad c1, u, q
smlad c6, v, p; smlad c7, v, q; sxtb16 v, v; smlad c4, v, p; smlad c5, v, q""", """
ldrd u, v, {w0}; ldr p, {x0}; smlad c2, u, p; smlad c6, v, p
sxtb16 u, u; sxtb16 v, v; smlad c0, u, p; smlad c4, v, p
ldr p, {x1}; smlad c1, u, p; smlad c5, v, p
ldrd u, v, {w0}; smlad c3, u, p; smlad c7, v, p""", 12)  # fmt: skip

PAIRED_8X1 = DspMicrokernel("paired", 4, 1, """
ldr p, {x0}; ldrd u, v, {w0}
smlad c1, u, p; sxtb16 u, u; smlad c3, v, p; sxtb16 v, v; smlad c0, u, p; smlad c2, v, p
ldrd u, v, {w2}
smlad c5, u, p; sxtb16 u, u; smlad c7, v, p; sxtb16 v, v; smlad c4, u, p; smlad c6, v, p""", """
ldr p, {x0}
ldr u, {w0}; smlad c1, u, p; sxtb16 u, u; smlad c0, u, p
ldr u, {w1}; smlad c3, u, p; sxtb16 u, u; smlad c2, u, p
ldr u, {w2}; smlad c5, u, p; sxtb16 u, u; smlad c4, u, p
ldr u, {w3}; smlad c7, u, p; sxtb16 u, u; smlad c6, u, p""", 15)  # fmt: skip


BYTES_8X1 = DspMicrokernel("bytes", 4, 1, """
ldr p, {x0}; ldrd u, v, {w0}; sxtb16 q, p
smlad c1, u, q; sxtb16 u, u; smlad c3, v, q; sxtb16 v, v; smlad c0, u, q; smlad c2, v, q
ldrd u, v, {w2}; sxtb16 p, p, ror #8
smlad c5, u, q; sxtb16 u, u; smlad c7, v, q; sxtb16 v, v; smlad c4, u, q; smlad c6, v, q
ldrd u, v, {w4}
smlad c1, u, p; sxtb16 u, u; smlad c3, v, p; sxtb16 v, v; smlad c0, u, p; smlad c2, v, p
ldrd u, v, {w6}
smlad c5, u, p; sxtb16 u, u; smlad c7, v, p; sxtb16 v, v; smlad c4, u, p; smlad c6, v, p""", """
ldr p, {x0}; sxtb16 p, p
ldr u, {w0}; smlad c1, u, p; sxtb16 u, u; smlad c0, u, p
ldr u, {w1}; smlad c3, u, p; sxtb16 u, u; smlad c2, u, p
ldr u, {w2}; smlad c5, u, p; sxtb16 u, u; smlad c4, u, p
ldr u, {w3}; smlad c7, u, p; sxtb16 u, u; smlad c6, u, p
ldr p, {x0}; sxtb16 p, p, ror #8
ldr u, {w4}; smlad c1, u, p; sxtb16 u, u; smlad c0, u, p
ldr u, {w5}; smlad c3, u, p; sxtb16 u, u; smlad c2, u, p
ldr u, {w6}; smlad c5, u, p; sxtb16 u, u; smlad c4, u, p
ldr u, {w7}; smlad c7, u, p; sxtb16 u, u; smlad c6, u, p""", 31)  # fmt: skip

COLUMN_MICROKERNELS = (WIDE_2X4, FRESH_2X4, MAC_2X4, PAIRED_2X4, PAIRED_4X2, PAIRED_8X1)
"""Micro-kernels over columns of int16 pairs."""
