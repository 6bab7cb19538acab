"""Windows of one channel's plane on Helium, as programs: four outputs at once.

A gather reads sixteen bytes, the windows of 4 / G adjacent outputs; each of these has
its own weights, which are zero outside its window. G gathers make four sums:

    gather 0    | x x x x x x x x . . . . |  * weights 0 -> sum 0,  * weights 1 -> sum 1
    gather 1    | x x x x x x x x . . . . |  * weights 0 -> sum 2,  * weights 1 -> sum 3
"""

from firmwright.base.dtypes import INT8, INT32, UINT8, UINT32
from firmwright.kernels.isa import mve, mve_lanes
from firmwright.kernels.isa.c_numbers import equal
from firmwright.kernels.isa.instruction import RegisterClass, RegisterPlace
from firmwright.kernels.isa.mve_memory import MVE_MEMORY
from firmwright.kernels.vector_program import VectorBuilder, VectorProgram

SUMS = 4
_LANES = 16
_VECTOR = RegisterClass.VECTOR
_BYTES = RegisterPlace(_VECTOR, INT8, _LANES)
_OFFSETS = RegisterPlace(_VECTOR, UINT8, _LANES)
WORDS = RegisterPlace(_VECTOR, INT32, SUMS)


def load_weights(groups: int) -> VectorProgram:
    """Return the steps before all blocks: the offsets, and the weights of each sum."""
    k = VectorBuilder("load_weights")
    load = MVE_MEMORY.rows["vldrbq_u8"]
    gather = MVE_MEMORY.rows["vldrbq_gather_offset_s8"]
    k.named("taps", load, k.pointer("table", UINT8)[0])
    for number in range(SUMS // groups):
        offsets = k(load, k.pointer(f"table + {_LANES * (number + 1)}", UINT8)[0])
        k.named(f"w{number}", gather, k.pointer("w", INT8)[0], offsets)
    k.named("target", MVE_MEMORY.rows["vldrwq_u32"], k.pointer("places", UINT32)[0])
    return k.build_vectors()


def block_sums(groups: int) -> VectorProgram:
    """Return the steps that leave the sums of a block in the vector `sums`."""
    k = VectorBuilder("block_sums")
    taps = k.variable("taps", _OFFSETS)
    gather = MVE_MEMORY.rows["vldrbq_gather_offset_s8"]
    each = SUMS // groups
    weights = [k.variable(f"w{number}", _BYTES) for number in range(each)]
    sums = []
    for group in range(groups):
        step = ("", " + group")[group] if group < 2 else f" + {group} * group"
        values = k.named(f"x{group}", gather, k.pointer(f"from{step}", INT8)[0], taps)
        for number, weight in enumerate(weights):
            name = f"sum{group * each + number}"
            sums.append(k.named(name, mve_lanes.vmladavq_s8, values, weight))
    vector = k.variable("sums", WORDS)
    k(mve.vmov_words, *sums, into=vector)
    k(mve.vaddq_n_s32, vector, k.number("bias"), into=vector)
    return k.build_vectors()


def scale_by_numbers() -> VectorProgram:
    """Return the steps that scale `sums` by a number, with two roundings."""
    k = VectorBuilder("scale_by_numbers")
    total, rounding = k.variable("sums", WORDS), k.number("rounding")
    shift = k.number("shift")
    k(mve.vqrdmulhq_n_s32, total, k.number("multiplier"), into=total)
    # Halves away from zero, in the second case of shifted channels only.
    with k.when(k(equal, rounding, 1)):
        k(mve.vaddq_s32, total, k(mve.vshrq_n_s32, total, 31), into=total)
    with k.when(k(equal, rounding, 2)):
        shifted = k(mve.vandq_s32, total, k(mve.vdupq_n_s32, shift))
        k(mve.vaddq_s32, total, k(mve.vshrq_n_s32, shifted, 31), into=total)
    k(mve.vrshlq_n_s32, total, shift, into=total)
    return k.build_vectors()
