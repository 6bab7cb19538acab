"""The model file: TFLM's signal operators, a history of features, a small network.

`build` takes quantized layers (none for the features only) and returns a .tflite file
with one input, the 320 samples of a hop. The history is a variable, so a run needs only
new samples.

    samples -> frame -> window -> scale -> spectrum -> energy -> mel bank -> root
        -> less noise -> gain -> logarithm -> int8 -> history of 24
        -> dense, relu -> dense -> softmax
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from flatbuffers import flexbuffers
from numpy.typing import NDArray
from speech import HOP, RATE, WORDS

FRAME, FFT, CHANNELS, FRAMES = 480, 512, 40, 24
LOWEST_HZ, HIGHEST_HZ = 125.0, 7500.0
FEATURE = (0.0625, -128)  # scale and zero point: logarithms from 0 to 15.9
LOG_SCALE = 1600
SMOOTHING_BITS, CORRECTION_BITS, GAIN_BITS, SNR_BITS = 10, 3, 21, 12

Table = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Dense:
    """An int8 layer: weights [out, in], their scale, bias; y's scale and zero point."""

    weights: Table
    weight_scale: float
    bias: Table
    scale: float
    zero_point: int
    relu: bool


def hann() -> Table:
    """Return the Hann window with 12 fractional bits."""
    angle = 2 * np.pi * (np.arange(FRAME) + 0.5) / FRAME
    return np.round(4096 * (0.5 - 0.5 * np.cos(angle))).astype(np.int16)


def mel_bank() -> list[Table]:
    """Return weights and unweights with 12 bits, and the places of the bands.

    A band has a first bin, a first weight and a width.
    """

    def mel(hz: Any) -> Any:
        return 1127 * np.log1p(np.asarray(hz) / 700)

    edges = np.linspace(mel(LOWEST_HZ), mel(HIGHEST_HZ), CHANNELS + 2)
    place = mel(np.arange(FFT // 2 + 1) * RATE / FFT)
    weights: list[float] = []
    bins, places, widths = [], [], []
    for low, high in pairwise(edges):
        inside = np.flatnonzero((place >= low) & (place < high))
        bins.append(int(inside[0]) if len(inside) else 0)
        places.append(len(weights))
        widths.append(len(inside))
        weights += ((high - place[inside]) / (high - low)).tolist()
    falling = np.round(4096 * np.array(weights)).astype(np.int16)
    tables = [np.array(table, np.int16) for table in (bins, places, widths)]
    return [falling, (4096 - falling).astype(np.int16), *tables]


def gain_table() -> Table:
    """Return (noise + 80)^-0.95 in TFLM's PCAN format: value and steps by bit width."""

    def gain(noise: float) -> float:
        level = noise / (1 << (SMOOTHING_BITS - CORRECTION_BITS))
        return float(np.round((1 << GAIN_BITS) * (level + 80.0) ** -0.95))

    table = np.zeros(125)
    table[0], table[1] = gain(0), gain(1)
    for bits in range(2, 33):
        start = 2.0 ** (bits - 1)
        first, half, full = gain(start), gain(1.5 * start), gain(2 * start)
        slope = 4 * (half - first) - (full - first)
        row = 4 * bits - 6
        table[row : row + 3] = first, slope, full - first - slope
    return np.clip(table, -32768, 32767).astype(np.int16)


class _File:
    """One subgraph, written operator by operator; tensors are identified by index."""

    def __init__(self) -> None:
        self.model, self.graph = schema.ModelT(), schema.SubGraphT()
        self.model.version, self.model.subgraphs = 3, [self.graph]
        self.model.operatorCodes, self.model.buffers = [], [schema.BufferT()]
        self.graph.tensors, self.graph.operators = [], []
        self.graph.inputs, self.graph.outputs = [], []
        self.codes: dict[str, int] = {}

    def tensor(
        self,
        name: str,
        dtype: str,
        shape: Sequence[int],
        scale: float = 0.0,
        zero: int = 0,
    ) -> int:
        made = schema.TensorT()
        made.name, made.shape = name, list(shape)
        made.type = getattr(schema.TensorType, dtype.upper())
        if scale:
            made.quantization = schema.QuantizationParametersT()
            made.quantization.scale = np.array([scale], np.float32)
            made.quantization.zeroPoint = np.array([zero], np.int64)
        self.graph.tensors.append(made)
        return len(self.graph.tensors) - 1

    def constant(self, name: str, data: Table, scale: float = 0.0) -> int:
        index = self.tensor(name, data.dtype.name, data.shape, scale)
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(data.tobytes(), np.uint8)
        self.graph.tensors[index].buffer = len(self.model.buffers)
        self.model.buffers.append(buffer)
        return index

    def op(
        self,
        name: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        table: str = "",
        **options: Any,
    ) -> None:
        made = schema.OperatorT()
        made.opcodeIndex = self._code(name)
        made.inputs, made.outputs = list(inputs), list(outputs)
        if name.startswith("Signal"):
            builder = flexbuffers.Builder()
            with builder.Map():
                for key, value in options.items():
                    builder.Key(key)
                    builder.Add(value)
            made.customOptions = list(builder.Finish())
        elif table:
            made.builtinOptionsType = getattr(schema.BuiltinOptions, table)
            made.builtinOptions = getattr(schema, f"{table}T")()
            for key, value in options.items():
                setattr(made.builtinOptions, key, value)
        self.graph.operators.append(made)

    def data(self) -> bytes:
        builder = flatbuffers.Builder(1 << 16)
        builder.Finish(self.model.Pack(builder), file_identifier=b"TFL3")
        return bytes(builder.Output())

    def _code(self, name: str) -> int:
        if name not in self.codes:
            made = schema.OperatorCodeT()
            is_custom = name.startswith("Signal")
            number = getattr(schema.BuiltinOperator, "CUSTOM" if is_custom else name)
            made.builtinCode, made.deprecatedBuiltinCode = number, min(number, 127)
            made.customCode = name if is_custom else None
            made.version = {"FULLY_CONNECTED": 4, "CONCATENATION": 2, "SOFTMAX": 2}.get(
                name, 1
            )
            self.codes[name] = len(self.model.operatorCodes)
            self.model.operatorCodes.append(made)
        return self.codes[name]


def build(layers: Sequence[Dense] = ()) -> bytes:
    """Build the file; without layers its output is the features of a run."""
    file = _File()
    features = _front_end(file)
    if not layers:
        file.graph.outputs = [features]
        return file.data()
    history = _history(file, features)
    x, width = history, FRAMES * CHANNELS
    shape = file.constant("flat", np.array([1, width], np.int32))
    flat = file.tensor("flattened", "int8", (1, width), *FEATURE)
    file.op("RESHAPE", [x, shape], [flat])
    x, scale = flat, FEATURE[0]
    for number, layer in enumerate(layers):
        x, scale = _dense(file, number, layer, x, scale), layer.scale
    result = file.tensor("words", "int8", (1, len(WORDS)), 1 / 256, -128)
    file.op("SOFTMAX", [x], [result], "SoftmaxOptions", beta=1.0)
    file.graph.outputs = [result]
    return file.data()


def _front_end(file: _File) -> int:
    """Emit the path from samples to the features of a frame, int8 [1, 1, CHANNELS]."""
    bins = FFT // 2 + 1
    samples = file.tensor("samples", "int16", (1, HOP))
    file.graph.inputs = [samples]

    def made(name: str, dtype: str, *shape: int) -> int:
        return file.tensor(name, dtype, shape)

    frames, flag = made("frames", "int16", 1, 1, FRAME), made("frame_valid", "bool")
    options: dict[str, Any] = {"frame_size": FRAME, "frame_step": HOP, "prefill": True}
    file.op("SignalFramer", [samples], [frames, flag], **options)
    frame = made("frame", "int16", FRAME)
    file.op(
        "RESHAPE", [frames, file.constant("one", np.array([FRAME], np.int32))], [frame]
    )
    faded, loud, bits = (
        made("faded", "int16", FRAME),
        made("loud", "int16", FRAME),
        made("bits", "int32"),
    )
    file.op("SignalWindow", [frame, file.constant("hann", hann())], [faded], shift=12)
    file.op("SignalFftAutoScale", [faded], [loud, bits])
    spectrum, energy = (
        made("spectrum", "int16", FFT + 2),
        made("energy", "uint32", bins),
    )
    file.op("SignalRfft", [loud], [spectrum], T=schema.TensorType.INT16, fft_length=FFT)
    file.op("SignalEnergy", [spectrum], [energy], start_index=0, end_index=bins)
    names = ("weights", "unweights", "bins", "places", "widths")
    bank = [
        file.constant(name, table)
        for name, table in zip(names, mel_bank(), strict=True)
    ]
    sums, roots = made("sums", "uint64", CHANNELS), made("roots", "uint32", CHANNELS)
    file.op("SignalFilterBank", [energy, *bank], [sums], num_channels=CHANNELS)
    file.op("SignalFilterBankSquareRoot", [sums, bits], [roots])
    clear, noise = made("clear", "uint32", CHANNELS), made("noise", "uint32", CHANNELS)
    file.op(
        "SignalFilterBankSpectralSubtraction",
        [roots],
        [clear, noise],
        alternate_one_minus_smoothing=16384 - 983,
        alternate_smoothing=983,
        clamping=False,
        min_signal_remaining=819,
        num_channels=CHANNELS,
        one_minus_smoothing=16384 - 410,
        smoothing=410,
        smoothing_bits=SMOOTHING_BITS,
        spectral_subtraction_bits=14,
    )
    even, logs = (
        made("even", "uint32", CHANNELS),
        file.tensor("logs", "int16", (CHANNELS,), 1 / LOG_SCALE),
    )
    gains = file.constant("gains", gain_table())
    shift = GAIN_BITS - CORRECTION_BITS - SNR_BITS
    file.op("SignalPCAN", [clear, noise, gains], [even], snr_shift=shift)
    options = {"input_correction_bits": CORRECTION_BITS, "output_scale": LOG_SCALE}
    file.op("SignalFilterBankLog", [even], [logs], **options)
    small = file.tensor("small", "int8", (CHANNELS,), *FEATURE)
    file.op("QUANTIZE", [logs], [small])
    features = file.tensor("features", "int8", (1, 1, CHANNELS), *FEATURE)
    shape = file.constant("row", np.array([1, 1, CHANNELS], np.int32))
    file.op("RESHAPE", [small, shape], [features])
    return features


def _history(file: _File, features: int) -> int:
    """Emit the features of the last FRAMES runs, stored in a variable."""
    whole, older = (1, FRAMES, CHANNELS), (1, FRAMES - 1, CHANNELS)
    handle = file.tensor("history", "resource", ())
    file.op(
        "VAR_HANDLE",
        [],
        [handle],
        "VarHandleOptions",
        container="",
        sharedName="history",
    )
    before = file.tensor("before", "int8", whole, *FEATURE)
    file.op("READ_VARIABLE", [handle], [before])
    ends = (("from", (0, 1, 0)), ("to", whole), ("by", (1, 1, 1)))
    at = [file.constant(name, np.array(place, np.int32)) for name, place in ends]
    kept, now = (
        file.tensor("kept", "int8", older, *FEATURE),
        file.tensor("now", "int8", whole, *FEATURE),
    )
    file.op("STRIDED_SLICE", [before, *at], [kept], "StridedSliceOptions")
    file.op("CONCATENATION", [kept, features], [now], "ConcatenationOptions", axis=1)
    file.op("ASSIGN_VARIABLE", [handle, now], [])
    return now


def _dense(file: _File, number: int, layer: Dense, x: int, x_scale: float) -> int:
    outputs, _ = layer.weights.shape
    weights = file.constant(f"weights_{number}", layer.weights, layer.weight_scale)
    bias = file.constant(f"bias_{number}", layer.bias, x_scale * layer.weight_scale)
    y = file.tensor(
        f"dense_{number}", "int8", (1, outputs), layer.scale, layer.zero_point
    )
    activation = schema.ActivationFunctionType.RELU if layer.relu else 0
    options = {"fusedActivationFunction": activation}
    file.op(
        "FULLY_CONNECTED", [x, weights, bias], [y], "FullyConnectedOptions", **options
    )
    return y
