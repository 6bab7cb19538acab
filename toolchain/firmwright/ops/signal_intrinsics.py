"""Integer intrinsics of the signal operators: bit length and rounded square root.

Semantics: TFLM's signal library. The root of a value below 2^32 never exceeds 65535, even if 65536
is nearer.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from firmwright.base.dtypes import INT32, UINT32, UINT64
from firmwright.ir.tir.intrinsic import Intrinsic, Operand


def bit_length(x: Any) -> Any:
    """Return the number of significant bits; exact, since every x below 2^32 is a float64."""
    return np.frexp(np.asarray(x, np.float64))[1].astype(np.int32)


BIT_LENGTH = Intrinsic(
    name="bit_length",
    operands=(Operand("x", "in", UINT32),),
    result=INT32,
    meaning=bit_length,
    portable="""\
uint32_t rest = x;
int32_t bits = 0;
for (int32_t step = 16; step > 0; step >>= 1) {
    if (rest >> step != 0u) {
        rest >>= step;
        bits += step;
    }
}
return bits + (rest != 0u ? 1 : 0);""",
    doc="The number of significant bits of x.",
    instructions=24,
)


def rounded_square_root(x: Any) -> Any:
    """Return the nearest integer root, limited to 16 bits if x has 32."""
    x = np.asarray(x, np.uint64)
    one, limit_32 = np.uint64(1), np.uint64(0xFFFFFFFF)
    root = np.minimum(np.sqrt(x.astype(np.float64)), float(limit_32)).astype(np.uint64)
    root = np.where(root * root > x, root - one, root)
    above = np.minimum(root, limit_32 - one) + one
    root = np.where(above * above <= x, above, root)
    limit = np.where(x >> np.uint64(32) == 0, np.uint64(0xFFFF), limit_32)
    is_up = (x - root * root > root) & (root != limit)
    return np.where(is_up, root + one, root).astype(np.uint32)


NEAREST_ROOT = Intrinsic(
    name="nearest_root",
    operands=(Operand("x", "in", UINT64),),
    result=UINT32,
    meaning=rounded_square_root,
    portable="""\
const uint64_t limit = x >> 32 == 0u ? 0xFFFFu : 0xFFFFFFFFu;
uint64_t root = 0;
for (uint64_t bit = (limit >> 1) + 1u; bit != 0u; bit >>= 1) {
    const uint64_t more = root | bit;
    if (more * more <= x) {
        root = more;
    }
}
return (uint32_t)(x - root * root > root && root != limit ? root + 1u : root);""",
    doc="The rounded square root of x, limited to 16 bits if x has 32.",
    instructions=300,
)

SIGNAL_INTRINSICS: Mapping[str, Intrinsic] = {i.name: i for i in (BIT_LENGTH, NEAREST_ROOT)}
