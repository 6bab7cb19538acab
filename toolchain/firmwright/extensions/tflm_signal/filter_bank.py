"""Filter bank operators of TFLM's signal library: from energy to keyword features.

filter_bank: channel c sums weights * x over its bins and unweights * x over the bins of
    channel c - 1 (overlapping triangles), in 64 bits that wrap.
filter_bank_square_root: square root, rounded to nearest, shifted right by input 1.
spectral_subtraction: updates a noise estimate n' = (a x 2^s + b n) / 2^t, with separate
    a, b for odd channels, and subtracts it, leaving at least the share
    `min_signal_remaining` of x.
pcan: v = x times a gain that falls with rising noise; y = v^2 / 4 below 2, else v - 1.
filter_bank_log: `output_scale` ln(x 2^s) / 2^16, saturated to int16; x below 1 counts
    as 1. The fraction of log2 is interpolated in a 16-bit table of
    log2(1 + i/128) - i/128.

The references also compute batches of frames, whose axis is the first one.
"""

from collections.abc import Callable, Sequence

import numpy as np

from firmwright.base.dtypes import INT16, INT32, UINT16, UINT32, UINT64, Array, DType
from firmwright.base.errors import NotSupportedError
from firmwright.extensions.tflm_signal.attributes import (
    FilterBankAttrs,
    FilterBankLogAttrs,
    PcanAttrs,
    SpectralSubtractionAttrs,
)
from firmwright.extensions.tflm_signal.logarithms import (
    LN2,
    check_shift,
    log_table,
    natural_logarithms,
)
from firmwright.ir import tir
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.tir.builder import (
    INDEX,
    ArithExpr,
    immediate,
    maximum,
    minimum,
    select,
)
from firmwright.ir.tir.builder import call_intrinsic as intrinsic
from firmwright.ops.intrinsics import bit_length, rounded_square_root
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef

UINT32_MASK = 0xFFFFFFFF


def _per_channel_type(call: OpCall, source: DType, result: DType) -> TensorType:
    x, y = call.input(0), call.output
    if x.dtype != source or x.elements != y.elements:
        found = f"{x.dtype.name} {list(x.shape)}"
        what = f"{y.elements} channels of {found}, not of {source.name}"
        raise NotSupportedError(what)
    return TensorType(y.shape, result, y.quantization)


_TABLES = ("weights", "unweights", "first bins", "first weights", "widths")


def bank_tables(call: OpCall) -> list[Array]:
    tables: list[Array] = []
    for index in range(1, 6):
        table = call.constant(index)
        if table is None:
            raise NotSupportedError(f"a filter bank with variable {', '.join(_TABLES)}")
        tables.append(table.array().reshape(-1))
    return tables


def _bank_infer(call: OpCall) -> tuple[TensorType, ...]:
    x, count = call.input(0), call.attributes(FilterBankAttrs).num_channels
    weights, unweights, bins, starts, widths = bank_tables(call)
    if x.dtype != UINT32 or call.output.elements != count:
        what = f"{count} channels of {x.dtype.name} in {call.output.shape}"
        raise NotSupportedError(what)
    for table in (bins, starts, widths):
        if len(table) != count + 1:
            bank = f"a filter bank of {count} channels"
            raise NotSupportedError(f"{bank} with tables of other lengths")
    occupied = widths > 0
    bins_end = max((bins + widths)[occupied].max(initial=0), 0)
    weights_end = max((starts + widths).max(initial=0), 0)
    lowest = min(bins[occupied].min(initial=0), starts[occupied].min(initial=0))
    weights_fit = weights_end <= min(len(weights), len(unweights))
    if lowest < 0 or bins_end > x.elements or not weights_fit:
        raise NotSupportedError("a filter bank with indices outside of its tables")
    return (TensorType(call.output.shape, UINT64),)


def bank_matrix(tables: Sequence[Array], bins: int, channels: int) -> Array:
    """Return the weights of all bins in all channels, int64 [bins, channels]."""
    weights, unweights, firsts, starts, widths = (table.reshape(-1) for table in tables)
    bank = np.zeros((bins, channels), np.int64)
    for channel, (first, start, width) in enumerate(
        zip(firsts.tolist(), starts.tolist(), widths.tolist(), strict=True)
    ):
        wide = max(width, 0)
        places, used = slice(first, first + wide), slice(start, start + wide)
        if channel > 0:
            bank[places, channel - 1] += weights[used]
        if channel < channels:
            bank[places, channel] += unweights[used]
    return bank


def _bank_reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    energy, *tables = arrays
    count = call.attributes(FilterBankAttrs).num_channels
    energy = energy.reshape(call.output.elements // count, -1).astype(np.uint64)
    # Products with signed weights are correct modulo 2^64.
    bank = bank_matrix(tables, energy.shape[1], count)
    sums = energy @ bank.astype(np.uint64)
    return (sums.reshape(call.output.shape),)


def _bank_lower(call: OpCall, b: Kernel) -> None:
    count = call.attributes(FilterBankAttrs).num_channels
    names, tables = ("bins", "places", "widths"), bank_tables(call)[2:]
    constants = []
    for name, array in zip(names, tables, strict=True):
        constants.append(b.constant(name, array.astype(np.uint16), UINT16))
    bins, starts, widths = constants
    size = call.input(0).elements
    x = b.view("energy", b.input(0), 0, (size,))
    y = b.view("out", b.y, 0, (count,), access="w")
    total, carried = b.register("total", UINT64), b.register("carried", UINT64)
    total.set(0)
    carried.set(0)
    with b.for_("channel", count + 1) as channel:
        first = b.let("bin", b.load(bins, [channel]).cast(INDEX))
        start = b.let("place", b.load(starts, [channel]).cast(INDEX))
        with b.for_("j", b.load(widths, [channel]).cast(INDEX)) as j:
            energy = b.load(x, [minimum(first + j, size - 1)])
            value = b.let("value", energy.cast(UINT64))
            for sums, index in ((total, 1), (carried, 2)):
                table = b.input(index)
                weight = b.load(table, [minimum(start + j, table.elements - 1)])
                sums.add(value * weight.cast(UINT64))
        with b.if_(channel > 0):
            b.store(y, [maximum(channel - 1, 0)], total.value)
        total.set(carried.value)
        carried.set(0)


def _root_infer(call: OpCall) -> tuple[TensorType, ...]:
    if call.input(1).dtype != INT32 or call.input(1).elements != 1:
        raise NotSupportedError(f"a scale of {call.input(1).dtype.name}")
    return (_per_channel_type(call, UINT64, UINT32),)


def _root_reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    shifts = (arrays[1].reshape(-1, 1) & 31).astype(np.uint32)
    roots = rounded_square_root(arrays[0]).reshape(len(shifts), -1)
    return ((roots >> shifts).reshape(call.output.shape),)


def lower_roots(call: OpCall, b: Kernel, root: str = "nearest_root") -> None:
    """Emit the square roots by the intrinsic `root`."""
    count = call.output.elements
    x = b.view("energy", b.input(0), 0, (count,))
    bits = b.view("bits", b.input(1), 0, (1,))
    y = b.view("out", b.y, 0, (count,), access="w")
    shift = b.let("shift", b.load(bits, [0]).cast(UINT32) & 31, UINT32)
    with b.for_("i", count) as i:
        b.store(y, [i], intrinsic(root, [b.load(x, [i])], UINT32) >> shift)


def _subtraction_infer(call: OpCall) -> tuple[TensorType, ...]:
    x, noise = call.input(0), call.input(1)
    count = call.attributes(SpectralSubtractionAttrs).num_channels
    has_types = x.dtype == UINT32 and noise.dtype == UINT32
    if not has_types or x.elements != count or noise.elements != count:
        raise NotSupportedError(f"{count} channels of {x.dtype.name} {list(x.shape)}")
    return tuple(TensorType(kind.shape, UINT32) for kind in call.outputs)


def _smoothing(call: OpCall, parity: int) -> tuple[int, int]:
    attrs = call.attributes(SpectralSubtractionAttrs)
    new, old = attrs.smoothing, attrs.one_minus_smoothing
    if parity:
        new, old = attrs.alternate_smoothing, attrs.alternate_one_minus_smoothing
    return new & UINT32_MASK, old & UINT32_MASK


def _subtraction_reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    attrs = call.attributes(SpectralSubtractionAttrs)
    channels = attrs.num_channels
    signal, noise = (a.reshape(-1, channels).astype(np.uint64) for a in arrays)
    word = np.uint64(UINT32_MASK)
    bits = np.uint64(attrs.smoothing_bits)
    shift = np.uint64(attrs.spectral_subtraction_bits)
    odd = np.arange(channels) % 2 == 1
    (new, old), (odd_new, odd_old) = _smoothing(call, 0), _smoothing(call, 1)
    new_by, old_by = np.where(odd, odd_new, new), np.where(odd, odd_old, old)
    scaled = signal << bits & word
    estimate = scaled * new_by.astype(np.uint64) + noise * old_by.astype(np.uint64)
    estimate = estimate >> shift & word
    noise_part = np.minimum(estimate, scaled)
    share = np.uint64(attrs.min_signal_remaining & UINT32_MASK)
    minimum_left = signal * share >> shift & word
    remaining = np.maximum((scaled - noise_part) >> bits, minimum_left)
    new_estimate = noise_part if attrs.clamping else estimate
    return (
        remaining.astype(np.uint32).reshape(call.output.shape),
        new_estimate.astype(np.uint32).reshape(call.outputs[1].shape),
    )


def _subtraction_lower(call: OpCall, b: Kernel) -> None:
    count = call.attributes(SpectralSubtractionAttrs).num_channels
    x = b.view("signal", b.input(0), 0, (count,))
    noise, y = b.views("estimate out", (count,), b.input(1), b.y)
    new_estimate = b.view("kept", b.outputs[1], 0, (count,), access="w")
    with b.for_("i", count) as i:
        lower_subtraction_channel(b, (x, noise, y, new_estimate), i)


def lower_subtraction_channel(
    b: Kernel, buffers: Sequence[tir.Buffer], i: ArithExpr, parity: int | None = None
) -> None:
    """Emit channel `i`, which is even or odd as `parity` if that is known."""
    call, (x, noise, y, new_estimate) = b.call, buffers
    attrs = call.attributes(SpectralSubtractionAttrs)
    bits, shift = attrs.smoothing_bits, attrs.spectral_subtraction_bits
    new_by, old_by = _factors(call, i, parity)
    signal = b.load(x, [i])
    scaled = b.let("scaled", signal << bits, UINT32)
    smooth = scaled.cast(UINT64) * new_by.cast(UINT64)
    smooth = smooth + b.load(noise, [i]).cast(UINT64) * old_by.cast(UINT64)
    estimate = b.let("smooth", (smooth >> shift).cast(UINT32), UINT32)
    noise_part = b.let("used", minimum(estimate, scaled), UINT32)
    share = _word(attrs.min_signal_remaining & UINT32_MASK).cast(UINT64)
    minimum_left = (signal.cast(UINT64) * share >> shift).cast(UINT32)
    b.store(y, [i], maximum((scaled - noise_part) >> bits, minimum_left))
    b.store(new_estimate, [i], noise_part if attrs.clamping else estimate)


def _factors(
    call: OpCall, i: ArithExpr, parity: int | None
) -> tuple[ArithExpr, ArithExpr]:
    even, odd = (tuple(map(_word, _smoothing(call, k))) for k in (0, 1))
    if parity is not None or _smoothing(call, 0) == _smoothing(call, 1):
        new, old = odd if parity else even
        return new, old
    is_even = (i % 2).equal(0)
    return select(is_even, even[0], odd[0]), select(is_even, even[1], odd[1])


def _word(value: int) -> ArithExpr:
    return ArithExpr(immediate(value, UINT32))


_SNR_BITS, _OUTPUT_BITS = 12, 6


def _pcan_infer(call: OpCall) -> tuple[TensorType, ...]:
    noise, gains = call.input(1), call.input(2)
    if noise.dtype != UINT32 or noise.elements != call.output.elements:
        raise NotSupportedError(f"noise of {noise.dtype.name} {list(noise.shape)}")
    if gains.dtype != INT16 or gains.elements < 3:
        raise NotSupportedError(f"gains of {gains.dtype.name} {list(gains.shape)}")
    check_shift(call.attributes(PcanAttrs).snr_shift, UINT64.bits)
    return (_per_channel_type(call, UINT32, UINT32),)


def noise_gains(noise: Array, gains: Array) -> Array:
    """Return the int16 gain at each level of noise; see `_gain`."""
    noise, gains = noise.astype(np.int64), gains.astype(np.int64)
    bits = bit_length(noise).astype(np.int64)
    row = np.clip(4 * bits - 6, 0, len(gains) - 3)
    fraction = (noise << np.maximum(11 - bits, 0) >> np.maximum(bits - 11, 0)) & 0x3FF
    slope = (gains[row + 2] * fraction >> 5) + (gains[row + 1] << 5)
    curve = ((slope * fraction + (1 << 14)).astype(np.int32) >> 15) + gains[row]
    gain = np.where(noise <= 2, gains[np.minimum(noise, 2)], curve)
    return np.asarray(gain, np.int16)


def _pcan_reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    x, noise, gains = (array.reshape(-1) for array in arrays)
    gain = noise_gains(noise, gains).astype(np.uint32)
    product = x.astype(np.uint64) * gain.astype(np.uint64)
    snr_shift = np.uint64(call.attributes(PcanAttrs).snr_shift)
    ratio = (product >> snr_shift).astype(np.uint32)
    square = ratio * ratio >> np.uint32(2 + 2 * _SNR_BITS - _OUTPUT_BITS)
    one = np.uint32(1 << _OUTPUT_BITS)
    beyond = (ratio >> np.uint32(_SNR_BITS - _OUTPUT_BITS)) - one
    shrunk = np.where(ratio < (2 << _SNR_BITS), square, beyond)
    return (shrunk.reshape(call.output.shape),)


def _pcan_lower(call: OpCall, b: Kernel) -> None:
    count = call.output.elements
    x = b.view("signal", b.input(0), 0, (count,))
    noise = b.view("noise", b.input(1), 0, (count,))
    gains = b.view("gains", b.input(2), 0, (call.input(2).elements,))
    y = b.view("out", b.y, 0, (count,), access="w")
    with b.for_("i", count) as i:
        level = b.let("level", b.load(noise, [i]), UINT32)
        gain = b.let("gain", _gain(b, gains, level).cast(INT16).cast(UINT32), UINT32)
        product = b.load(x, [i]).cast(UINT64) * gain.cast(UINT64)
        ratio = (product >> call.attributes(PcanAttrs).snr_shift).cast(UINT32)
        b.store(y, [i], shrink_ratio(b.let("ratio", ratio, UINT32)))


def shrink_ratio(v: ArithExpr) -> ArithExpr:
    """Return the output of pcan for the product with the gain, a variable."""
    square = v * v >> (2 + 2 * _SNR_BITS - _OUTPUT_BITS)
    beyond = (v >> (_SNR_BITS - _OUTPUT_BITS)) - (1 << _OUTPUT_BITS)
    return select(v < (2 << _SNR_BITS), square, beyond)


def _gain(b: Kernel, gains: tir.Buffer, level: ArithExpr) -> ArithExpr:
    """Return the gain at noise `level`.

    The table has a quadratic segment for each bit length: value, slope, bend and an
    unused number. The fraction is the 10 bits of the level behind its first one.
    """
    bits = intrinsic("bit_length", [level], INT32)
    row = maximum(minimum(bits * 4 - 6, gains.elements - 3), 0).cast(INDEX)
    left = maximum(bits * -1 + 11, 0).cast(UINT32)
    right = maximum(bits - 11, 0).cast(UINT32)
    fraction = (level << left >> right) & 0x3FF
    value, slope, bend = (b.load_i32(gains, [row + k]) for k in range(3))
    steep = (bend * fraction.cast(INT32) >> 5) + slope * 32
    # Unsigned, because the product may wrap.
    curve = (steep.cast(UINT32) * fraction + (1 << 14)).cast(INT32) >> 15
    near = b.load_i32(gains, [minimum(level, 2).cast(INDEX)])
    return select(level <= 2, near, curve + value)


def _log_infer(call: OpCall) -> tuple[TensorType, ...]:
    check_shift(call.attributes(FilterBankLogAttrs).input_correction_bits, UINT32.bits)
    return (_per_channel_type(call, UINT32, INT16),)


def _log_reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    attrs = call.attributes(FilterBankLogAttrs)
    shifted = arrays[0].reshape(-1).astype(np.int64) << attrs.input_correction_bits
    x = np.maximum(shifted & UINT32_MASK, 1)
    natural = natural_logarithms(x, np.array(log_table()))
    scaled = ((natural * attrs.output_scale + 32768) & UINT32_MASK) >> 16
    return (np.minimum(scaled, INT16.max).astype(np.int16).reshape(call.output.shape),)


def _log_lower(call: OpCall, b: Kernel) -> None:
    table = b.constant("table", np.array(log_table(), np.int16), INT16)
    count = call.output.elements
    source, y = b.views("signal out", (count,), b.input(0), b.y)

    def natural(x: ArithExpr) -> ArithExpr:
        whole, part = split_logarithm(b, x)
        segment = b.let("segment", minimum(part >> 9, 127).cast(INDEX))
        below, above = b.load_i32(table, [segment]), b.load_i32(table, [segment + 1])
        between = (above - below) * (part & 511).cast(INT32) >> 16
        rest = part + (below + between).cast(UINT32)
        # The product of the rest, which is below 1.1 * 2^16, has 32 bits.
        return whole * LN2 + (rest * LN2 + 32768 >> 16)

    with b.for_("i", count) as i:
        lower_log(b, source, y, i, natural)


def split_logarithm(b: Kernel, x: ArithExpr) -> tuple[ArithExpr, ArithExpr]:
    """Return (whole, part) of x = 2^whole (1 + part / 2^16), which is not 0."""
    length = intrinsic("bit_length", [x], INT32).cast(UINT32)
    whole = b.let("whole", length - 1, UINT32)
    part = (x << (_word(31) - whole) & 0x7FFFFFFF) >> 15
    return whole, b.let("part", part, UINT32)


def lower_log(
    b: Kernel,
    source: tir.Buffer,
    y: tir.Buffer,
    i: ArithExpr,
    natural: Callable[[ArithExpr], ArithExpr],
) -> None:
    """Emit element `i`.

    `natural` returns the natural logarithm of a number, in units of 2^-16. Both are
    uint32.
    """
    attrs = b.call.attributes(FilterBankLogAttrs)
    shifted = b.load(source, [i]) << attrs.input_correction_bits
    x = b.let("x", maximum(shifted, 1), UINT32)
    factor = _word(attrs.output_scale & UINT32_MASK)
    scaled = (natural(x) * factor + 32768) >> 16
    b.store(y, [i], minimum(scaled, INT16.max).cast(INT16))


OPDEFS = (
    OpDef(
        "filter_bank",
        _bank_infer,
        _bank_reference,
        _bank_lower,
        dtypes=("uint32",),
        inputs=(
            "spectrum",
            "weights",
            "unweights",
            "first bins",
            "first weights",
            "widths",
        ),
        numerics="tflm",
    ),
    OpDef(
        "filter_bank_square_root",
        _root_infer,
        _root_reference,
        lower_roots,
        dtypes=("uint64",),
        inputs=("x", "scale bits"),
        numerics="tflm",
    ),
    OpDef(
        "spectral_subtraction",
        _subtraction_infer,
        _subtraction_reference,
        _subtraction_lower,
        dtypes=("uint32",),
        inputs=("x", "estimate"),
        results=("y", "estimate"),
        numerics="tflm",
    ),
    OpDef(
        "pcan",
        _pcan_infer,
        _pcan_reference,
        _pcan_lower,
        dtypes=("uint32",),
        inputs=("x", "noise estimate", "gains"),
        numerics="tflm",
    ),
    OpDef(
        "filter_bank_log",
        _log_infer,
        _log_reference,
        _log_lower,
        dtypes=("uint32",),
        inputs=("x",),
        numerics="tflm",
    ),
)
