"""AudioSpectrogram and Mfcc of .tflite files as spectra and products.

    AudioSpectrogram   x [n, c] -> [c, n] -> stft -> sum of squares (-> root)
    Mfcc               root -> mel weights -> at least 1e-12 -> logarithm -> cosines

The window of a spectrogram is a periodic Hann window, and zeros follow it up to the
transform, whose length is the next power of two. Semantics: TFLite's kernels of these
names, which compute in double; measured. Nodes with other operands stay as they are,
and are refused.
"""

from dataclasses import replace

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.frontends.tflite.decoded_model import (
    RawModel,
    RawNode,
    RawSubgraph,
    RawTensor,
)
from firmwright.frontends.tflite.graph_rewriter import GraphRewriter
from firmwright.frontends.tflite.rewrites import ModelRewrite
from firmwright.frontends.tflite.spectrum_nodes import add_magnitudes, add_product
from firmwright.ir.core import Attrs

SPECTROGRAM, MFCC = "custom:AudioSpectrogram", "custom:Mfcc"
_LENGTHS = tuple(1 << n for n in range(5, 15))
"""The transforms of the operator stft."""
_CHANNELS_MAX = 512
_FLOOR = np.float32(1e-12)
"""The least sum of a mel channel."""


def lower_spectrograms(model: RawModel) -> RawModel:
    """Return the model without the operators AudioSpectrogram and Mfcc."""
    graphs = tuple(_lower_graph(graph) for graph in model.subgraphs)
    return model if graphs == model.subgraphs else replace(model, subgraphs=graphs)


def _lower_graph(graph: RawSubgraph) -> RawSubgraph:
    if not any(node.op in (SPECTROGRAM, MFCC) for node in graph.nodes):
        return graph
    rewriter = GraphRewriter(graph)
    for node in graph.nodes:
        if node.op == SPECTROGRAM and _is_spectrogram(graph, node):
            _add_spectrogram(rewriter, node)
        elif node.op == MFCC and _is_mfcc(graph, node):
            _add_mfcc(rewriter, node)
        else:
            rewriter.nodes.append(node)
    return rewriter.subgraph()


def _tensors(graph: RawSubgraph, node: RawNode, inputs: int) -> list[RawTensor]:
    """Return the tensors of a node; none if their number or an index is not right."""
    places = (*node.inputs, *node.outputs)
    if (len(node.inputs), len(node.outputs)) != (inputs, 1):
        return []
    if any(not 0 <= place < len(graph.tensors) for place in places):
        return []
    return [graph.tensors[place] for place in places]


def _integer(node: RawNode, name: str) -> int:
    """Return an option; 0 if it is no integer."""
    value = node.options.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _length(window: int) -> int:
    """Return the length of the transform of a window."""
    return 1 << max(window - 1, 0).bit_length()


def _is_spectrogram(graph: RawSubgraph, node: RawNode) -> bool:
    tensors = _tensors(graph, node, 1)
    if not tensors:
        return False
    x, y = tensors
    window, stride = _integer(node, "window_size"), _integer(node, "stride")
    kinds = (x.dtype, y.dtype) == ("float32", "float32")
    if not kinds or len(x.shape) != 2 or x.shape[0] < window:
        return False
    return window > 1 and stride > 0 and _length(window) in _LENGTHS


def _add_spectrogram(rewriter: GraphRewriter, node: RawNode) -> None:
    x = rewriter.tensors[node.inputs[0]]
    window, stride = _integer(node, "window_size"), _integer(node, "stride")
    length, (samples, channels) = _length(window), x.shape
    signal = rewriter.tensor("signal", "float32", (channels, samples))
    order = rewriter.constant("order", np.array([1, 0], np.int32))
    rewriter.emit(replace(node, outputs=(signal,)), "TRANSPOSE", (x.index, order))
    if length > window:
        reach = samples + length - window
        padded = rewriter.tensor("padded", "float32", (channels, reach))
        zeros = np.array([[0, 0], [0, length - window]], np.int32)
        operands = (signal, rewriter.constant("zeros", zeros))
        rewriter.emit(replace(node, outputs=(padded,)), "PAD", operands)
        signal = padded
    weights = np.zeros(length, np.float32)
    angle = 2 * np.pi * np.arange(window) / window
    weights[:window] = 0.5 - 0.5 * np.cos(angle)
    count, bins = (samples - window) // stride + 1, length // 2 + 1
    numbers = rewriter.tensor("numbers", "float32", (channels, count, 2 * bins))
    settings: Attrs = {"length": length, "step": stride}
    source = replace(node, outputs=(numbers,))
    faded = rewriter.constant("window", weights)
    rewriter.emit(source, SPECTROGRAM, (signal, faded), **settings)
    shape = (channels, count, bins, 2)
    pairs = rewriter.tensor("pairs", "float32", shape)
    form = rewriter.constant("shape", np.array(shape, np.int32))
    source = replace(node, outputs=(pairs,))
    rewriter.emit(source, "RESHAPE", (numbers, form), new_shape=())
    is_squared = bool(node.options.get("magnitude_squared"))
    add_magnitudes(rewriter, node, pairs, is_squared=is_squared)


def _is_mfcc(graph: RawSubgraph, node: RawNode) -> bool:
    tensors = _tensors(graph, node, 2)
    if not tensors:
        return False
    x, rate, y = tensors
    channels = _integer(node, "filterbank_channel_count")
    count = _integer(node, "dct_coefficient_count")
    lower, upper = _bounds(node)
    kinds = (x.dtype, rate.dtype, y.dtype) == ("float32", "int32", "float32")
    has_rate = rate.buffer is not None and len(rate.buffer) == 4
    sizes = len(x.shape) == 3 and x.shape[2] > 1
    sizes = sizes and 0 < count <= channels <= _CHANNELS_MAX
    return kinds and has_rate and sizes and 0 <= lower < upper and _rate(rate) > 0


def _bounds(node: RawNode) -> tuple[float, float]:
    """Return the frequencies between which the channels are, in hertz."""
    found: list[float] = []
    for name in ("lower_frequency_limit", "upper_frequency_limit"):
        value = node.options.get(name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        found.append(float(value) if is_number else -1.0)  # type: ignore[arg-type]
    return found[0], found[1]


def _rate(rate: RawTensor) -> int:
    return int(np.frombuffer(rate.buffer or b"", np.int32)[0])


def _add_mfcc(rewriter: GraphRewriter, node: RawNode) -> None:
    x, rate = (rewriter.tensors[index] for index in node.inputs)
    channels = _integer(node, "filterbank_channel_count")
    count, (rows, slices, bins) = _integer(node, "dct_coefficient_count"), x.shape
    weights = mel_weights(bins, _rate(rate), channels, *_bounds(node))
    cosines = np.arange(count)[:, None] * (np.arange(channels) + 0.5)
    table = np.sqrt(2 / channels) * np.cos(np.pi / channels * cosines)
    shape = (rows, slices, channels)
    roots = rewriter.tensor("roots", "float32", x.shape)
    rewriter.emit(replace(node, outputs=(roots,)), "SQRT", (x.index,))
    steps = ("sums", "limited", "logarithms")
    sums, limited, logs = (rewriter.tensor(step, "float32", shape) for step in steps)
    source = replace(node, outputs=(sums,))
    add_product(rewriter, source, roots, "mel", weights.astype(np.float32))
    floor = rewriter.constant("floor", np.array(_FLOOR))
    rewriter.emit(replace(node, outputs=(limited,)), "MAXIMUM", (sums, floor))
    rewriter.emit(replace(node, outputs=(logs,)), "LOG", (limited,))
    add_product(rewriter, node, logs, "cosines", table.astype(np.float32))


def mel_weights(
    bins: int, rate: int, channels: int, lower: float, upper: float
) -> Array:
    """Return the weights of bins in mel channels, float64 [channels, bins].

    A bin between two centers belongs to both channels, in shares of its distances. The
    first bin above `lower` is that after it by one and a half, rounded down.
    """
    low, high = (1127 * np.log1p(hertz / 700) for hertz in (lower, upper))
    centers = low + (high - low) / (channels + 1) * np.arange(1, channels + 2)
    spacing = 0.5 * rate / (bins - 1)
    places = 1127 * np.log1p(np.arange(bins) * spacing / 700)
    weights = np.zeros((channels, bins))
    for bin_ in range(int(1.5 + lower / spacing), min(int(upper / spacing) + 1, bins)):
        above = min(int(np.searchsorted(centers, places[bin_])), channels)
        below = low if above == 0 else centers[above - 1]
        share = (centers[above] - places[bin_]) / (centers[above] - below)
        if above > 0:
            weights[above - 1, bin_] += share
        if above < channels:
            weights[above, bin_] += 1 - share
    return weights


MODEL_REWRITES: tuple[ModelRewrite, ...] = (lower_spectrograms,)
