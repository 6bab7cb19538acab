"""band_powers: sums of the squared magnitudes of bins in bands, in float32.

x is [N, C, L + 2], the bins 0 to L / 2 of (real, imaginary) as rfft returns them; y is
[N, 1, B C]: each of the B bands of all channels. A band is `factor` times the sum of
re re + im im over its bins, from 0 with its first bin on, each operation rounded. The
bins 0 and L / 2, which have no twin of negative frequency, count half. Semantics:
scipy.signal.periodogram, summed over the bins of a band, up to roundings.
"""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.graph.attributes.sensors import BandPowersAttrs
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef


def _infer(call: OpCall) -> tuple[TensorType, ...]:
    x, attrs = call.input(0), call.attributes(BandPowersAttrs)
    if x.dtype != FLOAT32 or len(x.shape) != 3 or x.shape[2] < 4 or x.shape[2] % 2:
        raise NotSupportedError(f"a spectrum of {x.dtype.name} {list(x.shape)}")
    bins = x.shape[2] // 2
    if len(attrs.first) != len(attrs.end) or not attrs.first:
        raise NotSupportedError("bands without a first bin and an end each")
    for first, end in zip(attrs.first, attrs.end, strict=True):
        if not 0 <= first < end <= bins:
            raise NotSupportedError(f"a band from bin {first} to {end} of {bins}")
    bands = len(attrs.first) * x.shape[1]
    return (TensorType((x.shape[0], 1, bands), FLOAT32),)


def _reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    x, attrs = arrays[0], call.attributes(BandPowersAttrs)
    bins = x.reshape(*x.shape[:2], -1, 2)
    with np.errstate(all="ignore"):
        power = bins[..., 0] * bins[..., 0] + bins[..., 1] * bins[..., 1]
        power[..., [0, -1]] *= np.float32(0.5)
        bands: list[Array] = []
        for first, end in zip(attrs.first, attrs.end, strict=True):
            total = np.zeros(x.shape[:2], np.float32)
            for k in range(first, end):
                total += power[..., k]
            bands.append(total * np.float32(attrs.factor))
    return (np.concatenate(bands, axis=1)[:, None],)


def _lower(call: OpCall, b: Kernel) -> None:
    x, attrs = call.input(0), call.attributes(BandPowersAttrs)
    items, channels, last = x.shape[0], x.shape[1], x.shape[2] // 2 - 1
    bins = b.view("bins", b.input(0), 0, (items, channels, last + 1, 2))
    shape = (items, len(attrs.first), channels)
    y = b.view("bands", b.y, 0, shape, access="w")
    with b.loops("n c", (items, channels)) as (n, c):

        def power(k: ArithExpr | int) -> ArithExpr:
            real, imaginary = (
                b.let(name, b.load(bins, [n, c, k, part]))
                for part, name in enumerate(("re", "im"))
            )
            return real * real + imaginary * imaginary

        for band, (first, end) in enumerate(zip(attrs.first, attrs.end, strict=True)):
            total = b.register("total", FLOAT32, 0.0)
            if first == 0:
                total.add(power(0) * 0.5)
            start, stop = max(first, 1), min(end, last)
            if start < stop:
                with b.for_("k", stop - start, start) as k:
                    total.add(power(k))
            if end == last + 1:
                total.add(power(last) * 0.5)
            b.store(y, [n, band, c], total.value * float(np.float32(attrs.factor)))


OPDEF = OpDef("band_powers", _infer, _reference, _lower)
