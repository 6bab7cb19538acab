"""Audio features as a record: rows in numpy, and the same rows in front of a network.

    samples -> frame -> window -> automatic scale -> transform -> energy -> mel bank
        -> square root (-> less noise (-> gain)) -> logarithm
        (-> cosine transform) -> int8

The steps up to the logarithm are operators of TFLM's signal library, and the batches
are computed by their references. Without noise reduction a value is
ln(sum(w |X|^2)) / 2 for a transform X of the windowed samples and weights w of the
channel, and at least 0; docs/decisions/0098-audio-features.md bounds the error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from firmwright.audio.batches import compute_rows, frames_of
from firmwright.audio.error_bounds import Definition, value_limits
from firmwright.audio.joining import emit_in_type, join_graphs, single_input
from firmwright.audio.settings import (
    FrameWindow,
    GainControl,
    NoiseReduction,
    require,
    require_stride,
)
from firmwright.audio.tables import (
    COSINE_BITS,
    SNR_BITS,
    WEIGHT_BITS,
    MelBank,
    correction_bits,
    cosine_table,
    gain_table,
    window_weights,
)
from firmwright.base.dtypes import (
    BOOL,
    INT8,
    INT16,
    INT32,
    DType,
)
from firmwright.base.errors import UsageError
from firmwright.flows.model.model import Model
from firmwright.graph_builder import GraphBuilder
from firmwright.ir.graph import TensorType, Value
from firmwright.ir.module import IRModule

_SMOOTHING_BITS, _SHARE_BITS, _GAIN_BITS = 10, 14, 21
_LENGTHS = tuple(1 << n for n in range(6, 15))
_FRAME = "features/frame"


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """Logarithms of the amplitudes in mel channels, one row of int8 for each hop.

    The defaults are those of TFLM's example micro_speech, except `log_scale`, which is
    64 there, and `scale`, which is 0.040625.

    Attributes:
        sample_rate: Samples per second.
        frame: Samples of a frame, which ends with its hop. Zeros precede the stream.
        hop: Samples from one row to the next: the samples of a run.
        length: Samples of the transform, a power of two from 64 to 16384.
        window: The window over a frame.
        channels: Triangles of the filter bank, by default the values of a row.
        lowest_hz: Frequency at which the first triangle of the filter bank begins.
        highest_hz: Frequency at which the last one ends.
        noise: The noise reduction; None leaves it out.
        gain: The gain control, which needs the noise's estimate; None leaves it out.
        coefficients: Values of a row that has the first coefficients of the
            orthonormal cosine transform (type 2) of the logarithms, of at most 512
            channels (MFCC); None keeps the logarithms.
        log_scale: Steps per unit of the natural logarithm before it becomes int8.
        scale: Units of the natural logarithm per step of int8.
        zero_point: The int8 of the value 0.
    """

    sample_rate: int = 16_000
    frame: int = 480
    hop: int = 320
    length: int = 512
    window: FrameWindow = FrameWindow.HANN
    channels: int = 40
    lowest_hz: float = 125.0
    highest_hz: float = 7_500.0
    noise: NoiseReduction | None = field(default_factory=NoiseReduction)
    gain: GainControl | None = field(default_factory=GainControl)
    coefficients: int | None = None
    log_scale: int = 1_600
    scale: float = 0.0625
    zero_point: int = -128

    def __post_init__(self) -> None:
        hint = f"one of {', '.join(map(str, _LENGTHS))}."
        require(self.length in _LENGTHS, f"{self.length} samples of a transform", hint)
        sizes = 0 < self.hop <= self.frame <= self.length
        what = f"a hop of {self.hop} and a frame of {self.frame} samples"
        hint = f"a hop up to the frame, and a frame of up to {self.length} samples."
        require(sizes, what, hint)
        bounds = 0 <= self.lowest_hz < self.highest_hz <= self.sample_rate / 2
        what = f"channels from {self.lowest_hz} to {self.highest_hz} Hz"
        require(bounds, what, f"frequencies up to {self.sample_rate / 2} Hz.")
        require(self.channels > 0, f"{self.channels} channels", "at least 1.")
        for first, end in pairwise(self._bank.bins_of_channels()):
            hint = "fewer channels or a longer transform."
            require(first < end, f"a channel without a frequency at bin {first}", hint)
        has_noise = self.gain is None or self.noise is not None
        require(has_noise, "a gain without an estimate of noise", "noise or no gain.")
        is_valid = self.coefficients is None or self.channels <= 512
        is_valid = is_valid and 0 < self.width <= self.channels
        hint = f"1 to {self.channels} of at most 512 channels."
        require(is_valid, f"{self.coefficients} coefficients", hint)
        require(0 < self.log_scale < 1 << 15, "the scale of logarithms", "1 to 32767.")
        require(self.scale > 0, f"the scale {self.scale}", "a number above 0.")
        is_int8 = INT8.min <= self.zero_point <= INT8.max
        require(is_int8, f"the zero point {self.zero_point}", "-128 to 127.")

    @property
    def width(self) -> int:
        """The values of a row."""
        return self.channels if self.coefficients is None else self.coefficients

    def compute(self, samples: npt.ArrayLike) -> npt.NDArray[np.int8]:
        """Return the rows of a stream that begins with `samples`, as the firmware does.

        Args:
            samples: int16 [..., samples], a stream for each index of the first axes.
                Samples after the last whole hop are not used.

        Returns:
            int8 [..., hops, width].
        """
        array = np.asarray(samples)
        if array.dtype != np.int16 or array.ndim == 0:
            hint = "int16, such as `(sound * 32767).astype(np.int16)` of floats to 1."
            raise UsageError(f"samples of {array.dtype.name}.", hint=hint)
        hops = array.shape[-1] // self.hop
        shape = (*array.shape[:-1], hops, self.width)
        if 0 in shape:
            return np.zeros(shape, np.int8)
        streams = array[..., : hops * self.hop].reshape(-1, hops * self.hop)
        frames = frames_of(streams, self.frame, self.hop)
        rows = compute_rows(_graph(self), _FRAME, frames)
        return rows.reshape(shape).astype(np.int8)

    def windows(
        self, samples: npt.ArrayLike, rows: int, *, stride: int = 1
    ) -> npt.NDArray[np.int8]:
        """Return the inputs of the network in `before`: the last `rows` of hops.

        Rows before the beginning are zero. The network runs after every n-th hop, for n
        = `stride`. The result is int8 [..., hops // stride, rows, width], a view of
        overlapping windows.
        """
        require(rows > 0, f"a window of {rows} rows", "at least 1.")
        require_stride(stride)
        computed = self.compute(samples)
        shape = (*computed.shape[:-2], rows - 1, self.width)
        before = np.full(shape, self.zero_point, np.int8)
        stream = np.concatenate([before, computed], axis=-2)
        windows = np.lib.stride_tricks.sliding_window_view(stream, rows, axis=-2)
        return np.moveaxis(windows, -1, -2)[..., stride - 1 :: stride, :, :]

    def to_float(self, rows: npt.NDArray[np.int8]) -> npt.NDArray[np.float32]:
        """Return the values of rows, as a network with a float input receives them."""
        steps = (rows.astype(np.int32) - self.zero_point).astype(np.float32)
        return steps * np.float32(self.scale)

    def limits(
        self, samples: npt.ArrayLike
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return between which numbers the values of `compute` are, by proof.

        The results, float64 [..., hops, width], are the logarithms of the amplitudes in
        real numbers, less and more all roundings after the tables, and the ends of int8
        where the transform may overflow (docs/decisions/0101-bounds-of-features.md).
        Raise UsageError with noise reduction, which depends on all earlier hops.
        """
        hint = "features with noise=None and gain=None."
        require(self.noise is None, "a bound with noise reduction", hint)
        rows = self.compute(samples)
        array = np.asarray(samples)[..., : rows.shape[-2] * self.hop]
        limits = value_limits(self._definition, array.reshape(-1, array.shape[-1]))
        ends = self.to_float(np.array([INT8.min, INT8.max], np.int8))
        lower, upper = (np.clip(x, *ends).reshape(rows.shape) for x in limits)
        return lower, upper

    @property
    def _definition(self) -> Definition:
        cosines = None
        if self.coefficients is not None:
            table = cosine_table(self.coefficients, self.channels)
            cosines = table / (1 << COSINE_BITS)
        return Definition(
            self.length,
            self.hop,
            window_weights(self.frame, self.window.value) / (1 << WEIGHT_BITS),
            self._bank.matrix() / (1 << WEIGHT_BITS),
            cosines,
            self.log_scale,
            self.scale,
        )

    def model(self) -> Model:
        """Return the model of `samples` int16 [1, hop] to a row int8 [1, width]."""
        return Model(_graph(self))

    def before(self, network: Model, *, stride: int = 1) -> Model:
        """Return a model that takes samples int16 [1, hop] and returns the results.

        Each run appends a row to the last rows, which are state. Each n-th run, for n =
        `stride`, runs the network with them; the results of other runs are those of the
        last one that did, at first 0 (the zero point of int8). The network's single
        input has a multiple of `width` elements, the rows from the oldest to the
        newest, of float32 or quantized. Raise UsageError for others.
        """
        require_stride(stride)
        wanted = single_input(network.module)
        rows = wanted.type.elements // self.width
        if rows * self.width != wanted.type.elements:
            shape = list(wanted.type.shape)
            what = f"{wanted.name} {shape} does not consist of rows of {self.width}."
            raise UsageError(
                what, hint="features with the width of the network's rows."
            )
        front = _graph(self, rows, wanted.type)
        return Model(join_graphs(front, network.module, stride))

    @property
    def _bank(self) -> MelBank:
        return MelBank(
            self.sample_rate,
            self.length,
            self.channels,
            self.lowest_hz,
            self.highest_hz,
        )


@lru_cache(maxsize=16)
def _graph(
    features: Features, rows: int = 0, wanted: TensorType | None = None
) -> IRModule:
    """Return the graph of the features, or of `rows` of them in the type `wanted`."""
    graph = FrontEnd(features)
    row = graph.quantized_row(graph.channels(graph.spectrum()))
    if wanted is not None:
        window = graph.history(row, rows)
        row = emit_in_type(graph.g, window, wanted, "features")
    return graph.g.module(row)


class FrontEnd:
    """The calls of a front end; each value has one frame, on its first axis."""

    def __init__(self, features: Features) -> None:
        self.features = features
        self.g = GraphBuilder("audio_features")

    def spectrum(self) -> tuple[Value, Value]:
        """Emit the energies of the bins, uint32, and the bits of their scale."""
        own, g = self.features, self.g
        samples = g.input("samples", (1, own.hop), "int16")
        inputs, reach = [samples], own.frame - own.hop
        names = ["features/frames", "features/valid"]
        types = [_type((1, 1, own.frame), INT16), _type((), BOOL)]
        if reach:
            past = g.state("features/past", np.zeros((1, reach), np.int16))
            inputs.append(past)
            names.append("features/past/next")
            types.append(past.type)
        framed = g.calls(
            "framer",
            *inputs,
            results=names,
            types=types,
            frame_size=own.frame,
            frame_step=own.hop,
        )
        if reach:
            g.set_next_state(past, framed[2])
        frame = g.call("reshape", framed[0], name=_FRAME, shape=(1, own.frame))
        window = window_weights(own.frame, own.window.value)
        weights = g.constant(window, name="features/window")
        faded = g.call("window", frame, weights, shift=WEIGHT_BITS)
        loud, bits = g.calls(
            "fft_auto_scale",
            faded,
            results=("features/loud", "features/bits"),
            types=[faded.type, _type((1,), INT32)],
        )
        spectrum = g.call("rfft", loud, shape=(1, own.length + 2), length=own.length)
        bins = own.length // 2 + 1
        energy = g.call(
            "spectrum_energy",
            spectrum,
            shape=(1, bins),
            dtype="uint32",
            start_index=0,
            end_index=bins,
        )
        return energy, bits

    def channels(self, spectrum: tuple[Value, Value]) -> Value:
        """Emit the amplitudes of the channels, uint32, with less noise if wanted."""
        own, g = self.features, self.g
        energy, bits = spectrum
        shape = (1, own.channels)
        names = ("weights", "unweights", "bins", "places", "widths")
        tables: list[Value] = []
        for name, table in zip(names, own._bank.tables(), strict=True):
            tables.append(g.constant(table, name=f"features/{name}"))
        sums = g.call(
            "filter_bank",
            energy,
            *tables,
            shape=shape,
            dtype="uint64",
            num_channels=own.channels,
        )
        roots = g.call(
            "filter_bank_square_root", sums, bits, shape=shape, dtype="uint32"
        )
        if own.noise is None:
            return roots
        remaining, estimate = self._less_noise(roots, own.noise)
        if own.gain is None:
            return remaining
        correction = correction_bits(own.length)
        noise_bits = _SMOOTHING_BITS - correction
        table = gain_table(own.gain.offset, own.gain.strength, _GAIN_BITS, noise_bits)
        fits = INT16.min <= table.min() and table.max() <= INT16.max
        require(fits, f"a gain as steep as {own.gain}", "less strength, more offset.")
        gains = g.constant(table.astype(np.int16), name="features/gains")
        shift = _GAIN_BITS - correction - SNR_BITS
        return g.call("pcan", remaining, estimate, gains, snr_shift=shift)

    def _less_noise(self, roots: Value, noise: NoiseReduction) -> tuple[Value, Value]:
        one, shape = 1 << _SHARE_BITS, roots.type.shape
        even, odd = int(np.float32(noise.even) * one), int(np.float32(noise.odd) * one)
        estimate = self.g.state("features/noise", np.zeros(shape, np.uint32))
        remaining, following = self.g.calls(
            "spectral_subtraction",
            roots,
            estimate,
            results=("features/remaining", "features/noise/next"),
            num_channels=self.features.channels,
            smoothing=even,
            one_minus_smoothing=one - even,
            alternate_smoothing=odd,
            alternate_one_minus_smoothing=one - odd,
            smoothing_bits=_SMOOTHING_BITS,
            spectral_subtraction_bits=_SHARE_BITS,
            min_signal_remaining=int(np.float32(noise.remaining) * one),
            clamping=0,
        )
        self.g.set_next_state(estimate, following)
        return remaining, following

    def logarithms(self, amplitudes: Value) -> Value:
        """Emit the logarithms of the amplitudes, int16 in steps of 1 / `log_scale`."""
        own = self.features
        return self.g.call(
            "filter_bank_log",
            amplitudes,
            dtype="int16",
            scale=1 / own.log_scale,
            input_correction_bits=correction_bits(own.length),
            output_scale=own.log_scale,
        )

    def quantized_row(self, amplitudes: Value) -> Value:
        own, g = self.features, self.g
        logs = self.logarithms(amplitudes)
        if own.coefficients is not None:
            logs = self._cosine_transform(logs, own.coefficients)
        return g.call(
            "quantize",
            logs,
            name="features/row",
            dtype="int8",
            scale=own.scale,
            zero_point=own.zero_point,
        )

    def _cosine_transform(self, logs: Value, count: int) -> Value:
        own, g = self.features, self.g
        table = cosine_table(count, own.channels)
        column = g.call("reshape", logs, shape=(1, 1, own.channels))
        sums = g.call(
            "reduction",
            column,
            g.constant(table[None], name="features/cosines"),
            shape=(1, count),
            dtype="int32",
            formula="int32(a) * int32(b)",
            step="add",
            axes=(2,),
            keep_dims=False,
        )
        scale = 1 / (own.log_scale << COSINE_BITS)
        return g.call("reshape", sums, shape=(1, count), scale=scale)

    def history(self, row: Value, rows: int) -> Value:
        """Emit the last rows, int8 [1, rows, width], which are kept as state."""
        own, g = self.features, self.g
        line = g.call("reshape", row, shape=(1, 1, own.width))
        if rows == 1:
            return line
        older = (1, rows - 1, own.width)
        initial = np.full(older, own.zero_point, np.int8)
        past = g.state(
            "features/rows", initial, scale=own.scale, zero_point=own.zero_point
        )
        now = g.call("concatenation", past, line, axis=1)
        following = g.call(
            "strided_slice",
            now,
            begin=(0, 1, 0),
            strides=(1, 1, 1),
            counts=older,
            shrunk=(),
        )
        g.set_next_state(past, following)
        return now


def _type(shape: tuple[int, ...], dtype: DType) -> TensorType:
    return TensorType(shape, dtype)
