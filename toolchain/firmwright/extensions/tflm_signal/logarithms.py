"""Natural logarithms of TFLM's filter_bank_log, by a table of 128 segments; shifts."""

from functools import cache

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import NotSupportedError
from firmwright.ops.intrinsics import bit_length

LN2 = round(65536 * float(np.log(2.0)))
"""The natural logarithm of 2 in units of 2^-16."""


def check_shift(count: int, bits: int) -> None:
    """Raise NotSupportedError unless C defines the shift of a number of `bits`."""
    if not 0 <= count < bits:
        raise NotSupportedError(f"a number of {bits} bits shifted by {count}")


@cache
def log_table() -> tuple[int, ...]:
    steps = np.arange(129) / 128
    return tuple(np.round(65536 * (np.log2(1 + steps) - steps)).astype(int).tolist())


def natural_logarithms(x: Array, table: Array) -> Array:
    """Return the logarithms of numbers above 0 in units of 2^-16."""
    x, table = x.astype(np.int64), table.astype(np.int64)
    whole = bit_length(x).astype(np.int64) - 1
    part = (x - (np.int64(1) << whole) << 31 - whole) >> 15
    segment = part >> 9
    below, above = table[segment], table[segment + 1]
    log2 = (whole << 16) + part + below + ((above - below) * (part & 511) >> 16)
    return np.asarray((log2 * LN2 + 32768) >> 16)
