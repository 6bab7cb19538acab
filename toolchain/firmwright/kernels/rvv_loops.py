"""RISC-V vectors for loops with independent iterations: groups of two registers."""

from collections.abc import Callable
from textwrap import indent

from firmwright.base.dtypes import BOOL, INT32, UINT32, DType
from firmwright.kernels.vector_loops import VectorTarget
from firmwright.kernels.vector_writer import Lanes, VectorWriter

_GROUPS = {8: "mf2", 16: "m1", 32: "m2"}
_BINARY = {
    "add": ("vadd", "vadd"),
    "sub": ("vsub", "vsub"),
    "mul": ("vmul", "vmul"),
    "mulh": ("vmulh", "vmulhu"),
    "min": ("vmin", "vminu"),
    "max": ("vmax", "vmaxu"),
    "div": ("vdiv", "vdivu"),
    "mod": ("vrem", "vremu"),
    "and": ("vand", "vand"),
    "or": ("vor", "vor"),
    "xor": ("vxor", "vxor"),
    "shl": ("vsll", "vsll"),
    "shr": ("vsra", "vsrl"),
}
"""Instructions for signed and unsigned lanes."""
_STEPS = (16, 8, 4, 2, 1)


def _kind(dtype: DType) -> str:
    return "i32m2" if dtype.signed else "u32m2"


def _c_type(dtype: DType) -> str:
    return "vint32m2_t" if dtype.signed else "vuint32m2_t"


class RiscvWriter(VectorWriter):
    """Writes instructions of RISC-V vectors, of `vl` elements."""

    def _lanes(self, dtype: DType, name: str, *operands: str) -> Lanes:
        given = ", ".join([*operands, "vl"])
        text = f"__riscv_{name}_{_kind(dtype)}({given})"
        return Lanes(self.bind(_c_type(dtype), text), dtype)

    def _mask(self, name: str, *operands: str) -> Lanes:
        text = f"__riscv_{name}_b16({', '.join(operands)}, vl)"
        return Lanes(self.bind("vbool16_t", text), BOOL)

    def index(self, first: str) -> Lanes:
        lanes = self.reinterpret(self._lanes(UINT32, "vid_v"), INT32)
        return self._lanes(INT32, "vadd_vx", lanes.text, first)

    def load(self, dtype: DType, address: str, stride: int) -> Lanes:
        if stride == 1:
            return self._loaded(dtype, f"vle{dtype.bits}_v", address)
        distance = f"{stride * dtype.size_bytes}"
        return self._loaded(dtype, f"vlse{dtype.bits}_v", address, distance)

    def gather(self, dtype: DType, address: str, indices: Lanes) -> Lanes:
        shift = str(dtype.size_bytes.bit_length() - 1)
        offsets = indices
        if dtype.bits > 8:
            offsets = self._lanes(UINT32, "vsll_vx", indices.text, shift)
        return self._loaded(dtype, "vluxei32_v", address, offsets.text)

    def _loaded(self, dtype: DType, name: str, *operands: str) -> Lanes:
        """Return loaded elements, widened."""
        lane = INT32 if dtype.signed else UINT32
        if dtype.bits == 32:
            return self._lanes(lane, name, *operands)
        kind, letter = ("int", "i") if dtype.signed else ("uint", "u")
        group = f"{dtype.bits}{_GROUPS[dtype.bits]}"
        text = f"__riscv_{name}_{letter}{group}({', '.join(operands)}, vl)"
        narrow = self.bind(f"v{kind}{group}_t", text)
        extend = f"v{'s' if dtype.signed else 'z'}ext_vf{32 // dtype.bits}"
        return self._lanes(lane, extend, narrow)

    def store(self, dtype: DType, address: str, lanes: Lanes) -> None:
        kind, letter = ("int", "i") if dtype.signed else ("uint", "u")
        narrow, bits = lanes.text, 32
        while bits > dtype.bits:
            bits //= 2
            group = f"{bits}{_GROUPS[bits]}"
            name = f"__riscv_vncvt_x_x_w_{letter}{group}"
            narrow = self.bind(f"v{kind}{group}_t", f"{name}({narrow}, vl)")
        name = f"__riscv_vse{bits}_v_{letter}{bits}{_GROUPS[bits]}"
        self.lines.append(f"{name}({address}, {narrow}, vl);")

    def binary(self, op: str, a: Lanes, b: Lanes) -> Lanes:
        name = _BINARY[op][not a.dtype.signed]
        form = "vx" if b.is_number else "vv"
        return self._lanes(a.dtype, f"{name}_{form}", a.text, b.text)

    def shift(self, op: str, a: Lanes, b: Lanes) -> Lanes:
        amount = b
        if b.is_number and b.value is None:
            amount = Lanes(f"(size_t)({b.text})", UINT32, is_number=True)
        elif not b.is_number:
            amount = self.reinterpret(b, UINT32)
        return self.binary(op, a, amount)

    def compare(self, op: str, a: Lanes, b: Lanes) -> Lanes:
        is_order = op not in ("eq", "ne") and not a.dtype.signed
        form = "vx" if b.is_number else "vv"
        name = f"vms{op}{'u' * is_order}_{form}_{_kind(a.dtype)}"
        return self._mask(name, a.text, b.text)

    def combine(self, op: str, a: Lanes, b: Lanes) -> Lanes:
        return self._mask(f"vm{op}_mm", a.text, b.text)

    def invert(self, a: Lanes) -> Lanes:
        return self._mask("vmnot_m", a.text)

    def select(self, condition: Lanes, a: Lanes, b: Lanes) -> Lanes:
        return self._lanes(a.dtype, "vmerge_vvm", b.text, a.text, condition.text)

    def spread(self, number: Lanes) -> Lanes:
        return self._lanes(number.dtype, "vmv_v_x", number.text)

    def reinterpret(self, a: Lanes, dtype: DType) -> Lanes:
        if a.dtype == dtype:
            return a
        name = f"__riscv_vreinterpret_v_{_kind(a.dtype)}_{_kind(dtype)}"
        return Lanes(self.bind(_c_type(dtype), f"{name}({a.text})"), dtype)

    def bit_length(self, a: Lanes) -> Lanes:
        """Return the bits of the number by halving: no instruction counts zeros."""
        rest = a
        length = self._lanes(UINT32, "vmv_v_x", "0")
        for step in _STEPS:
            is_above = self._mask(
                f"vmsgtu_vx_{_kind(UINT32)}", rest.text, str((1 << step) - 1)
            )
            shifted = self._lanes(UINT32, "vsrl_vx", rest.text, str(step))
            rest = self.select(is_above, shifted, rest)
            longer = self._lanes(UINT32, "vadd_vx", length.text, str(step))
            length = self.select(is_above, longer, length)
        # The rest is 0 or 1.
        return self.reinterpret(self.binary("add", length, rest), INT32)


def _loop(
    name: str, end: str, extent: int | None, vector: Callable[[str], list[str]]
) -> list[str]:
    body = indent("\n".join(vector("")), "    ")
    return [
        f"while ({name} < {end}) {{",
        f"    const size_t vl = __riscv_vsetvl_e32m2((size_t)({end} - {name}));",
        *body.splitlines(),
        f"    {name} += (int32_t)vl;",
        "}",
    ]


RISCV = VectorTarget("rvv", RiscvWriter, _loop)
