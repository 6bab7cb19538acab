#!/usr/bin/env python3
"""Check a proof bundle of a model's firmware: `python3 -I check_bundle.py BUNDLE`.

This file needs Python 3.10, numpy and nothing else, and starts no other program. It
derives what the firmware has to compute from the model file, by definitions of its own,
and compares that with the files of the bundle. It exits with 0 if every claim holds,
and with 1 and the reason if one does not.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import math
import re
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

ADD, AVERAGE_POOL_2D, CONV_2D, DEPTHWISE_CONV_2D = 0, 1, 3, 4
FULLY_CONNECTED, MAX_POOL_2D, RESHAPE, SOFTMAX = 9, 17, 22, 25
ACTIVATION_OPTION = {CONV_2D: 3, DEPTHWISE_CONV_2D: 4, FULLY_CONNECTED: 0}
ELEMENT_TYPES = {0: "<f4", 2: "<i4", 9: "<i1"}
ACTIVATIONS = {0: (None, None), 1: (0.0, None), 2: (-1.0, 1.0), 3: (0.0, 6.0)}
INT32_END = 1 << 31


class Rejected(Exception):
    """A claim that does not hold: what was found, and where."""


def require(holds: object, what: str) -> None:
    if not holds:
        raise Rejected(what)


# ---- the model file: TensorFlow Lite's schema, version 3 -----------------------------


class Table:
    """A table of a FlatBuffer; `field` returns the place of a member, or 0."""

    def __init__(self, data: bytes, place: int) -> None:
        self.data, self.place = data, place
        self.layout = place - self.number("i", place)

    def number(self, kind: str, place: int) -> Any:
        return struct.unpack_from("<" + kind, self.data, place)[0]

    def field(self, index: int) -> int:
        entry = 4 + 2 * index
        is_there = entry < self.number("H", self.layout)
        offset = self.number("H", self.layout + entry) if is_there else 0
        return self.place + offset if offset else 0

    def scalar(self, index: int, kind: str = "i", default: float = 0) -> Any:
        place = self.field(index)
        return self.number(kind, place) if place else default

    def target(self, index: int) -> int:
        place = self.field(index)
        return place + self.number("I", place) if place else 0

    def vector(self, index: int, kind: str) -> Any:
        place = self.target(index)
        count = self.number("I", place) if place else 0
        return np.frombuffer(self.data, kind, count, place + 4)

    def tables(self, index: int) -> list[Table]:
        place = self.target(index)
        places = [place + 4 + 4 * i for i in range(self.number("I", place))]
        return [Table(self.data, at + self.number("I", at)) for at in places]


class Tensor:
    """Shape, quantization and, of a constant, the values."""

    def __init__(self, table: Table, buffers: list[Table]) -> None:
        self.shape = tuple(map(int, table.vector(0, "<i4")))
        kind = self.kind = ELEMENT_TYPES.get(table.scalar(1, "b"), "")
        data = buffers[table.scalar(2, "I")].vector(0, "<u1").tobytes()
        self.values: Any = None
        if data and kind:
            self.values = np.frombuffer(data, kind).reshape(self.shape).astype(int)
        self.scales, self.zeros = [1.0], [0]
        if table.target(4):
            quantization = Table(table.data, table.target(4))
            self.scales = [float(s) for s in quantization.vector(2, "<f4")] or [1.0]
            self.zeros = [int(z) for z in quantization.vector(3, "<i8")] or [0]


class Node:
    """An operator of the graph, with its options as a table."""

    def __init__(self, table: Table, codes: list[Table]) -> None:
        code = codes[table.scalar(0, "I")]
        self.code = max(code.scalar(0, "b"), code.scalar(3))
        self.inputs = table.vector(1, "<i4").tolist()
        self.outputs = table.vector(2, "<i4").tolist()
        self.options = Table(table.data, table.target(4)) if table.target(4) else None

    def option(self, index: int, kind: str = "i", default: float = 0) -> Any:
        return self.options.scalar(index, kind, default) if self.options else default


class Graph:
    """The only subgraph of a model file."""

    def __init__(self, data: bytes) -> None:
        root = Table(data, struct.unpack_from("<I", data)[0])
        (graph,) = root.tables(2)
        buffers, codes = root.tables(4), root.tables(1)
        self.tensors = [Tensor(table, buffers) for table in graph.tables(0)]
        self.nodes = [Node(table, codes) for table in graph.tables(3)]
        self.inputs = graph.vector(1, "<i4").tolist()
        self.outputs = graph.vector(2, "<i4").tolist()


def require_known(graph: Graph) -> None:
    """Require operators and element types that this file has definitions of."""
    known = {*ACTIVATION_OPTION, ADD, AVERAGE_POOL_2D, MAX_POOL_2D, RESHAPE, SOFTMAX}
    read = {i for node in graph.nodes for i in node.inputs}
    for index, node in enumerate(graph.nodes):
        require(
            node.code in known, f"operator {index} is of an unknown kind, {node.code}"
        )
        kinds = {graph.tensors[i].kind for i in (node.inputs[0], *node.outputs)}
        require(kinds == {"<i1"}, f"operator {index} has other tensors than int8")
        is_last = node.outputs[0] not in read
        require(node.code != SOFTMAX or is_last, f"softmax {index} is not the last")


# ---- definitions: TensorFlow Lite's quantization specification -----------------------


def half_away(value: Any) -> Any:
    whole = np.floor(np.abs(value))
    whole += np.abs(value) - whole >= 0.5
    return np.copysign(whole, value).astype(np.int64)


def multiplier_of(real: float) -> tuple[int, int]:
    """Return multiplier and shift with real = multiplier * 2^(shift - 31)."""
    fraction, shift = math.frexp(real)
    multiplier = int(half_away(np.float64(fraction * (1 << 31))))
    if multiplier == INT32_END:
        multiplier, shift = multiplier // 2, shift + 1
    return (0, 0) if shift < -31 else (multiplier, shift)


def scaled_twice(value: Any, multiplier: Any, shift: Any) -> Any:
    """Round a doubled high product, then its division by a power of two."""
    left, right = np.maximum(shift, 0), np.maximum(-np.asarray(shift), 0)
    doubled = ((value << left) * multiplier + (1 << 30)) >> 31
    mask = (np.int64(1) << right) - 1
    return (doubled >> right) + ((doubled & mask) > (mask >> 1) + (doubled < 0))


def clamp_ends(y: Tensor, activation: int) -> tuple[int, int]:
    ends = [-128, 127]
    for i, real in enumerate(ACTIVATIONS[activation]):
        if real is not None:
            steps = half_away(np.float32(real) / np.float32(y.scales[0]))
            ends[i] = (max, min)[i](ends[i], y.zeros[0] + int(steps))
    return ends[0], ends[1]


class Layer:
    """A layer of sums of products, as rows [channel, tap] of weights."""

    def __init__(self, graph: Graph, node: Node, numerics: str) -> None:
        self.node = node
        self.x, self.w = (graph.tensors[i] for i in node.inputs[:2])
        self.y = graph.tensors[node.outputs[0]]
        channels = self.y.shape[-1]
        self.in_double = node.code == FULLY_CONNECTED and numerics == "litert"
        rows = self.w.values.reshape(-1, channels).T
        if node.code != DEPTHWISE_CONV_2D:
            rows = self.w.values.reshape(channels, -1)
        self.rows = rows
        self.bias = np.zeros(channels, np.int64)
        if len(node.inputs) > 2 and node.inputs[2] >= 0:
            self.bias = graph.tensors[node.inputs[2]].values
        self.starts, self.channels = self.bias, np.arange(channels)
        scales = np.resize(np.array(self.w.scales), channels)
        self.factors = self.x.scales[0] * scales / self.y.scales[0]
        pairs = [multiplier_of(float(factor)) for factor in self.factors]
        self.multipliers, self.shifts = np.array(pairs, np.int64).T
        option = node.option(ACTIVATION_OPTION[node.code], "b")
        self.clamps = clamp_ends(self.y, option)

    def result(self, sums: Any) -> Any:
        """Return the outputs of sums [..., channel]: the definition."""
        if self.in_double:
            scaled = half_away(sums * self.factors)
        else:
            scaled = scaled_twice(sums, self.multipliers, self.shifts)
        return np.clip(scaled + self.y.zeros[0], *self.clamps)

    def compute(self, x: Any) -> Any:
        x = x - self.x.zeros[0]
        if self.node.code == FULLY_CONNECTED:
            sums = x.reshape(-1, self.rows.shape[1]) @ self.rows.T
        elif self.node.code == CONV_2D:
            seen = windows(self.node, x, self.y, self.w.shape[1:3], 4)
            sums = np.einsum("byxcij,oijc->byxo", seen, self.w.values, optimize=True)
        else:
            seen = windows(self.node, x, self.y, self.w.shape[1:3], 5)
            seen = np.repeat(seen, self.y.shape[3] // x.shape[3], axis=3)
            sums = np.einsum("byxcij,ijc->byxc", seen, self.w.values[0])
        return self.result(self.bias + sums).reshape(self.y.shape)

    def bound(self, x: Any) -> Any:
        """Return the least and the greatest outputs for inputs in [x[0], x[1]].

        `ends` are then those of each tap, less the zero point, `least` and `most` those
        of the sums.
        """
        code, taps = self.node.code, self.rows.shape[1]
        channels = taps if code == FULLY_CONNECTED else self.x.shape[3]
        low, high = x.reshape(2, -1, channels) - self.x.zeros[0]
        ends = np.stack([low.min(0), high.max(0)])
        is_same = code != FULLY_CONNECTED and self.node.option(0, "b") == 0
        if is_same and math.prod(self.w.shape[1:3]) > 1:
            ends = np.stack([np.minimum(ends[0], 0), np.maximum(ends[1], 0)])
        if code == DEPTHWISE_CONV_2D:
            ends = np.repeat(ends, self.y.shape[3] // channels, axis=1)[:, :, None]
        else:
            ends = np.tile(ends, taps // channels)[:, None]
        self.ends = np.broadcast_to(ends, (2, *self.rows.shape))
        products = self.rows * ends
        self.least = self.bias + products.min(0).sum(1)
        self.most = self.bias + products.max(0).sum(1)
        outputs = np.stack([self.result(self.least), self.result(self.most)])
        shape = 2, *(1 for _ in self.y.shape[1:-1]), -1
        return np.broadcast_to(outputs.reshape(shape), (2, *self.y.shape[1:]))

    def part(self, channels: Any, inputs: Any) -> Layer:
        """Return the layer of some channels, and of the taps of some inputs.

        `starts` is what its products are added to. It contains those of the zero point,
        and of the other taps, which must be constant.
        """
        part = copy.copy(self)
        part.channels = channels
        for name in ("rows", "bias", "factors", "multipliers", "shifts"):
            setattr(part, name, getattr(self, name)[channels])
        part.least, part.most = self.least[channels], self.most[channels]
        low, high = self.ends[:, channels]
        is_read = np.ones(self.rows.shape[1], bool)
        if self.node.code != DEPTHWISE_CONV_2D:
            is_read = np.isin(np.arange(len(is_read)) % self.w.shape[-1], inputs)
        is_fixed = (low == high) | (part.rows == 0) | is_read
        require(is_fixed.all(), "the firmware lacks inputs that are not constant")
        constants = (part.rows * low)[:, ~is_read].sum(1)
        part.rows = part.rows[:, is_read]
        part.starts = part.bias + constants - self.x.zeros[0] * part.rows.sum(1)
        return part


def windows(node: Node, x: Any, y: Tensor, size: Any, dilation: int) -> Any:
    """Return the inputs [b, y, x, c, i, j] of each output; beyond the edge they are 0.

    The options of a dilation begin at `dilation`; 0 is an operator without them.
    """
    pads: list[tuple[int, int]] = [(0, 0)]
    spans: list[int] = []
    steps = [node.option(2), node.option(1)]
    dilations = [
        node.option(dilation + 1 - i, default=1) if dilation else 1 for i in (0, 1)
    ]
    for axis in range(2):
        span = (size[axis] - 1) * dilations[axis] + 1
        missing = (y.shape[axis + 1] - 1) * steps[axis] + span - x.shape[axis + 1]
        is_same = node.option(0, "b") == 0
        before = max(missing, 0) // 2 if is_same else 0
        pads.append((before, max(missing - before, 0)))
        spans.append(span)
    seen = sliding_window_view(np.pad(x, [*pads, (0, 0)]), spans, (1, 2))
    seen = seen[:, :: steps[0], :: steps[1], :, :: dilations[0], :: dilations[1]]
    return seen[:, : y.shape[1], : y.shape[2]]


def average_pool(node: Node, x: Any, y: Tensor) -> Any:
    size = node.option(4), node.option(3)
    sums = windows(node, x, y, size, 0).sum((4, 5))
    counts = windows(node, np.ones_like(x), y, size, 0).sum((4, 5))
    means = (np.abs(sums) + counts // 2) // counts * np.sign(sums)
    return np.clip(means, *clamp_ends(y, node.option(5, "b")))


def max_pool(node: Node, x: Any, y: Tensor) -> Any:
    # Beyond the edge is 0, which is less than all values here.
    seen = windows(node, x + 129, y, (node.option(4), node.option(3)), 0)
    return np.clip(seen.max((4, 5)) - 129, *clamp_ends(y, node.option(5, "b")))


def add(node: Node, tensors: list[Tensor], y: Tensor, operands: list[Any]) -> Any:
    most = 2 * max(tensor.scales[0] for tensor in tensors)
    total = 0
    for tensor, values in zip(tensors, operands, strict=True):
        factor = multiplier_of(tensor.scales[0] / most)
        total = total + scaled_twice((values - tensor.zeros[0]) << 20, *factor)
    factor = multiplier_of(most / ((1 << 20) * y.scales[0]))
    ends = clamp_ends(y, node.option(0, "b"))
    return np.clip(scaled_twice(total, *factor) + y.zeros[0], *ends)


def softmax(node: Node, x: Tensor, values: Any) -> Any:
    """Return the real function in steps of the result, not rounded."""
    beta = node.option(0, "f", 1.0) * x.scales[0]
    powers = np.exp(beta * (values - values.max(-1, keepdims=True)))
    return 256 * powers / powers.sum(-1, keepdims=True) - 128


def compute(
    graph: Graph,
    inputs: list[Any],
    layers: dict[int, Layer],
    finish: Callable[[Layer, Any], Any],
) -> dict[int, Any]:
    """Return the values of all tensors; that of a softmax is a real number.

    `finish` computes a layer from its input. All other operators are monotonic, so that
    the ends of ranges can be computed, too, if the first axis has both.
    """
    known = dict(zip(graph.inputs, inputs, strict=True))
    for index, node in enumerate(graph.nodes):
        operands = [i for i in node.inputs if i in known]
        tensors = [graph.tensors[i] for i in operands]
        values = [known[i] for i in operands]
        y = graph.tensors[node.outputs[0]]
        if index in layers:
            result = finish(layers[index], values[0])
        elif node.code == AVERAGE_POOL_2D:
            result = average_pool(node, values[0], y)
        elif node.code == MAX_POOL_2D:
            result = max_pool(node, values[0], y)
        elif node.code == ADD:
            result = add(node, tensors, y, values)
        elif node.code == SOFTMAX:
            result = softmax(node, tensors[0], values[0])
        else:
            result = values[0].reshape(-1, *y.shape[1:])
        known[node.outputs[0]] = result
    return known


class QuantizedNetwork:
    """The layers of a graph, by operator, and the ranges of its tensors.

    `live` has the channels that the firmware computes of tensors of which it lacks
    some.
    """

    def __init__(self, graph: Graph, numerics: str, live: dict[str, list[int]]) -> None:
        self.graph = graph
        self.live = {int(t): np.array(channels, int) for t, channels in live.items()}
        self.layers: dict[int, Layer] = {}
        for index, node in enumerate(graph.nodes):
            if node.code in ACTIVATION_OPTION:
                self.layers[index] = Layer(graph, node, numerics)
        shapes = [graph.tensors[i].shape[1:] for i in graph.inputs]
        inputs = [np.stack([np.full(s, -128), np.full(s, 127)]) for s in shapes]
        self.ranges = compute(graph, inputs, self.layers, Layer.bound)

        self.require_live()

    def require_live(self) -> None:
        """Require that readers lack the same channels, or are layers; see `part`."""
        for tensor, channels in self.live.items():
            require(tensor not in self.graph.outputs, "an output lacks channels")
            for node in (n for n in self.graph.nodes if tensor in n.inputs):
                others = self.live.get(node.outputs[0], np.arange(0))
                is_same = np.array_equal(channels, others) and node.code != ADD
                is_sum = node.code in (CONV_2D, FULLY_CONNECTED)
                require(is_sum or is_same, f"a reader of tensor {tensor} needs it all")

    def part(self, index: int, rows: Any = None) -> Layer:
        """Return the channels and taps of a layer that the firmware computes.

        `rows` are the channels of the rows of tables; the others must be constant.
        """
        node, layer = self.graph.nodes[index], self.layers[index]
        channels = self.live.get(node.outputs[0], np.arange(layer.y.shape[-1]))
        if rows is not None:
            others = np.setdiff1d(channels, channels[rows])
            low, high = self.ranges[node.outputs[0]][..., others]
            require((low == high).all(), f"operator {index} computes too few channels")
            channels = channels[rows]
        inputs = self.live.get(node.inputs[0], np.arange(layer.x.shape[-1]))
        return layer.part(channels, inputs)


# ---- the image and its disassembly ---------------------------------------------------


class Firmware:
    """The sections and symbols of a little-endian ELF file of 32 bits."""

    def __init__(self, data: bytes) -> None:
        require(data[:6] == b"\x7fELF\x01\x01", "the image is no 32-bit ELF file")
        self.data = data
        (start,) = struct.unpack_from("<I", data, 32)
        (count,) = struct.unpack_from("<H", data, 48)
        places = range(start, start + 40 * count, 40)
        self.sections = [struct.unpack_from("<10I", data, at) for at in places]
        self.symbols: dict[str, tuple[int, int]] = {}
        for table in (section for section in self.sections if section[1] == 2):
            names = self.sections[table[6]][4]
            for at in range(table[4], table[4] + table[5], 16):
                name, address, size = struct.unpack_from("<III", data, at)
                end = data.index(b"\0", names + name)
                self.symbols[data[names + name : end].decode()] = address, size

    def read(self, address: int, size: int) -> bytes:
        for _, kind, flags, start, offset, length, *_ in self.sections:
            is_inside = start <= address and address + size <= start + length
            if flags & 2 and kind != 8 and is_inside:  # SHF_ALLOC, not SHT_NOBITS
                return self.data[offset + address - start :][:size]
        raise Rejected(f"the image has no {size} bytes at {address:#x}")

    def constant(self, symbol: str, kind: str) -> Any:
        address, size = self.symbols.get(symbol, (0, 0))
        require(size, f"the image has no constant {symbol}")
        require(np.dtype(kind).kind in "iu", f"{symbol} is claimed to be no integers")
        return np.frombuffer(self.read(address, size), kind).astype(np.int64)


_CALLS = r"(bl|blx|jal|jalr|call)\s"
_JUMPS = r"(b|cb|j|call|tail|le|wls)"
_ENDS = r"(b|b\.n|b\.w|bx|j|jr|ret|mret|tail|tb[bh])\s|pop.*pc\}|ld.*pc\}|ldr.*\bpc, "
_POINTERS = r"blx?\s+(r\d|ip)|bx\s+(?!lr)|jalr\s|jr\s+a"
_COMPUTED = r"tb[bh]\s|jr\s+t|ldr.*\bpc, "
_LOWERINGS = r"sub(?:w|\.w)?\s+sp, (?:sp, )?#(\d+)|str.*\[sp, #-(\d+)\]!"


class Code:
    """The instructions of a disassembly, of which the bytes are those of the image."""

    def __init__(self, image: Firmware, text: str) -> None:
        self.text: dict[int, str] = {}
        self.function: dict[int, str] = {}
        self.following: dict[int, int] = {}
        name = ""
        for line in text.splitlines():
            if match := re.match(r"[0-9a-f]+ <(.+)>:$", line):
                name = match[1]
            match = re.match(r" *([0-9a-f]+):\t((?:[0-9a-f]{4,8} ?)+)\s*\t(.+)", line)
            if not match or match[3].startswith("."):
                continue
            address = int(match[1], 16)
            data = b"".join(bytes.fromhex(word)[::-1] for word in match[2].split())
            is_same = image.read(address, len(data)) == data
            require(is_same, f"the disassembly at {address:#x} is not of this image")
            self.text[address], self.function[address] = match[3], name
            self.following[address] = address + len(data)

    def target(self, address: int) -> int | None:
        """Return the target of a direct jump or call."""
        match = re.search(r"\b([0-9a-f]+) <[^>]+>", self.text[address])
        is_jump = re.match(_JUMPS, self.text[address])
        return int(match[1], 16) if match and is_jump else None

    def falls_through(self, address: int) -> bool:
        """Whether control can reach the next instruction, also by return."""
        text = self.text[address] + " "
        return bool(re.match(_CALLS, text)) or not re.match(_ENDS, text)

    def lowering(self, address: int) -> int:
        """Return the bytes by which an instruction lowers the stack."""
        text = self.text[address]
        if match := re.match(r"(v?)(?:push|stmdb\s+sp!,)\s*\{(.+)\}", text):
            count = 0
            for part in match[2].split(", "):
                first, _, last = part.partition("-")
                count += int(last[1:]) - int(first[1:]) + 1 if last else 1
            return count * (8 if match[1] and "d" in match[2] else 4)
        match = re.match(_LOWERINGS + r"|addi?\s+sp,sp,-(\d+)", text)
        return int(next(filter(None, match.groups()))) if match else 0


# ---- the bundle and its claims -------------------------------------------------------


class BundleFolder:
    """The files of a bundle; only those that its manifest lists are read.

    `parts` has the computed channels of each layer.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = json.loads((folder / "bundle.json").read_text())
        self.facts = json.loads(self.read("facts.json"))
        self.orders = np.load(io.BytesIO(self.read("orders.npz")))
        self.graph = Graph(self.read("model.tflite"))
        require_known(self.graph)
        self.image = Firmware(self.read("image/firmware.elf"))
        text = self.read("image/disassembly.txt").decode()
        self.code = Code(self.image, text)
        sources = [self.read(name).decode() for name in self.facts["sources"]]
        self.source = "".join(sources)
        facts = self.facts
        self.network = QuantizedNetwork(self.graph, facts["numerics"], facts["live"])
        self.parts: dict[int, Layer] = {}
        for index in self.network.layers:
            rows = facts["layers"][str(index)].get("rows")
            if rows:
                rows = self.image.constant(rows["symbol"], rows["kind"])
            self.parts[index] = self.network.part(index, rows)

    def read(self, name: str) -> bytes:
        digest = self.manifest["files"].get(name)
        path = self.folder / name
        require(digest and not path.is_symlink(), f"{name} is not in the manifest")
        data = path.read_bytes()
        require(hashlib.sha256(data).hexdigest() == digest, f"{name} was changed")
        return data

    def claims(self, name: str) -> Iterator[tuple[int, Layer, Any]]:
        """Yield the layers with a claim of this name, and the claims."""
        for index, part in self.parts.items():
            if name in self.facts["layers"][str(index)]:
                yield index, part, self.facts["layers"][str(index)][name]

    def without(self, name: str) -> str:
        rest = set(self.parts) - {index for index, *_ in self.claims(name)}
        return f"; not claimed for operators {sorted(rest)}" if rest else ""


def merkle_root(files: dict[str, str]) -> str:
    """Hash pairs of nodes (RFC 6962's prefixes); a leaf is a path and a file's hash."""
    leaves = [f"\0{path}\0{files[path]}".encode() for path in sorted(files)]
    nodes = [hashlib.sha256(leaf).digest() for leaf in leaves]
    while len(nodes) > 1:
        pairs = [b"".join(nodes[i : i + 2]) for i in range(0, len(nodes), 2)]
        nodes = [hashlib.sha256(b"\1" + pair).digest() for pair in pairs]
    return nodes[0].hex()


def check_files(bundle: BundleFolder) -> str:
    paths = [path for path in bundle.folder.rglob("*") if not path.is_dir()]
    found = {path.relative_to(bundle.folder).as_posix() for path in paths}
    listed, root = bundle.manifest["files"], bundle.manifest["root"]
    differing = sorted((found - {"bundle.json", "bundle.json.sig"}) ^ set(listed))
    require(not differing, f"not in the manifest, or lost: {differing}")
    for name in listed:
        bundle.read(name)
    require(merkle_root(listed) == root, "the root is not that of the files")
    return f"{len(listed)} files have the hashes of root {root}"


def check_sums(bundle: BundleFolder) -> str:
    reaches = [0]
    for index, part in bundle.parts.items():
        sums = abs(part.starts) + 128 * np.abs(part.rows).sum(1)
        require(sums.max() < INT32_END, f"operator {index}: sums up to {sums.max()}")
        reaches.append(int(sums.max()))
    return f"no partial sum of {len(reaches) - 1} layers exceeds {max(reaches):,}"


def check_weights(bundle: BundleFolder) -> str:
    count = 0
    for index, part, claim in bundle.claims("weights"):
        if claim.get("is_stream"):
            starts = bundle.facts["layers"][str(index)]["starts"]
            check_streams(bundle.image, part, claim["symbol"], starts["symbol"])
        elif lefts := claim.get("winograd"):
            check_table(bundle, claim, winograd_weights(part, np.array(lefts)))
        else:
            check_table(bundle, claim, part.rows.reshape(-1))
        count += np.unique(part.channels).size * part.rows.shape[1]
    return f"{count:,} weights are those of the model{bundle.without('weights')}"


def check_starts(bundle: BundleFolder) -> str:
    """Compare the tables of start values; those of streams are checked with them."""
    count = 0
    for _, part, claim in bundle.claims("starts"):
        if "kind" in claim:
            check_table(bundle, claim, part.starts << np.array(claim["lefts"]))
        count += 1
    rest = bundle.without("starts")
    return f"the biases of {count} layers are those of the model{rest}"


def check_table(bundle: BundleFolder, claim: Any, values: Any) -> None:
    """Require that each element of a table has one value or, by bytes, several.

    `orders` has which values an element has, the lowest first; -1 is none.
    """
    order = bundle.orders[claim["symbol"]]
    table = bundle.image.constant(claim["symbol"], claim["kind"])
    places = (1 << claim["left"]) * 256 ** np.arange(order.shape[1])
    expected = np.append(values, 0)[order] @ places
    require(
        (expected == table).all(), f"{claim['symbol']} has other values than the model"
    )
    is_there = np.isin(np.arange(len(values)), order)
    require(is_there.all(), f"{claim['symbol']} lacks values of the model")


def winograd_weights(part: Layer, lefts: Any) -> Any:
    """Return the weights of F(2x2, 3x3) [channel, point, input], shifted left.

    They are four times the real ones, and their products with 4x4 inputs, transformed,
    are at most 512 times the weights. All must fit their types.
    """
    transform = np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]])
    taps = part.rows.reshape(len(lefts), 3, 3, -1)
    tiles = np.einsum("ia,jb,oabc->oijc", transform, transform, taps)
    wide = tiles.reshape(len(lefts), -1) << (lefts - 2)[:, None]
    reach = 512 * np.abs(wide).sum(1) + np.abs(part.starts << lefts)
    fits = np.abs(wide).max() < 1 << 15 and reach.max() < INT32_END
    require(fits, "the weights of a transformed convolution are too large")
    return wide.reshape(-1)


def check_streams(image: Firmware, part: Layer, weights: str, bias: str) -> None:
    """Require weights in segments: each is a length and weights, and 0 is the end.

    The sums of a segment must fit 16 bits, as a word holds those of two columns.
    """
    streams = image.constant(weights, "<i1").reshape(len(part.rows), -1)
    totals = image.constant(bias, "<i4").reshape(-1, 2)
    for row, start, stream, total in zip(
        part.rows, part.starts, streams, totals, strict=True
    ):
        found: list[int] = []
        at = count = 0
        while length := stream[at]:
            segment = stream[at + 1 : at + 1 + length]
            ends = np.stack([segment * -128, segment * 127])
            fits = ends.min(0).sum() >= -(1 << 15) and ends.max(0).sum() < 1 << 15
            require(length > 0 and fits, f"{weights} has a segment that is too large")
            found += segment.tolist()
            at, count = at + 1 + length, count + 1
        require(found == row.tolist(), f"{weights} has other values than the model")
        both = (start << 16) + start - (count << 15), start
        is_same = (np.array(both).astype("<i4") == total).all()
        require(is_same, f"{bias} has other values than the model")


def half_units(multipliers: Any) -> Any:
    """Return 0x80 >> leading zeros of each multiplier, as the C computes it."""
    return 0x80 >> (32 - np.array([int(m).bit_length() for m in multipliers]))


def parameter(bundle: BundleFolder, claim: Any, layer: Layer, multiplier: Any) -> Any:
    """Return a parameter of each channel, from the image or from the C text."""
    total = np.zeros(len(layer.rows), np.int64) + claim.get("values", 0)
    if literal := claim.get("literal"):
        is_there = re.search(rf"(?<!\d){abs(literal)}(?!\d)", bundle.source)
        require(is_there, f"the C has no {literal}")
        total += literal
    if symbol := claim.get("symbol"):
        table = bundle.image.constant(symbol, claim["kind"])
        total += table[claim["start"] :: claim["stride"]][: len(total)]
    if half := claim.get("half_unit"):
        total += half * half_units(multiplier)
    return total


def check_requantization(bundle: BundleFolder) -> str:
    count = 0
    for index, layer, claim in bundle.claims("requantization"):
        shift = claim["shift"]
        check_form(bundle.source, claim["function"], shift)
        multiplier = parameter(bundle, claim["multiplier"], layer, None)
        names = "addend", "sign", "left"
        others = [parameter(bundle, claim[name], layer, multiplier) for name in names]
        addend, sign, left = others
        least, most = layer.least, layer.most
        reach = int((np.maximum(abs(least), abs(most)) << left).max())
        fits = reach < INT32_END and abs(addend).max() < INT32_END // 2
        is_monotonic = (multiplier >= 0).all() and (sign <= 0).all()
        require(fits and is_monotonic, f"operator {index}: parameters out of range")
        for sums in decisive_sums(layer, least, most):
            high = ((sums << left) * multiplier) >> 32
            value = (high + addend + np.where(sums < 0, sign, 0)) >> shift
            is_same = (np.clip(value, -128, 127) == layer.result(sums)).all(0)
            channels = np.flatnonzero(~is_same).tolist()
            require(is_same.all(), f"operator {index}: wrong in channels {channels}")
        count += 1
    rest = bundle.without("requantization")
    return f"{count} layers requantize every reachable sum as defined{rest}"


def decisive_sums(layer: Layer, least: Any, most: Any) -> Iterator[Any]:
    """Yield the first sum of each output, and the one before: [output, channel].

    Definition and firmware are monotonic, so that they agree between these.
    """
    outputs = np.arange(-128, 128)[:, None]
    low, high = np.stack([least] * 256), np.stack([most + 1] * 256)
    while (low < high).any():
        middle = (low + high) >> 1
        is_reached = layer.result(np.minimum(middle, most)) >= outputs
        low = np.where(is_reached | (low >= high), low, middle + 1)
        high = np.where(is_reached, np.minimum(middle, high), high)
    yield np.clip(low, least, most)
    yield np.clip(low - 1, least, most)


def kernel_body(source: str, function: str) -> str:
    match = re.search(
        rf"^\w+_KERNEL void {function}\([^;]*?\)\n\{{.*?\n\}}", source, re.M | re.S
    )
    require(match, f"the C has no kernel {function}")
    return match[0] if match else ""


def check_form(source: str, function: str, shift: int) -> None:
    """Require that a kernel computes all outputs by one product and this shift."""
    body = kernel_body(source, function)
    calls = re.findall(r"\w+_(saturate_i8\w*|requantize\w*)\(\s*\w*?_?(\w+)", body)
    require(calls, f"{function} has no requantization")
    for call in calls:
        is_form = call[0] == f"saturate_i8_asr{shift}" and call[1].endswith("smmla")
        require(is_form, f"{function} uses {' of '.join(call)}")


def check_plan(bundle: BundleFolder) -> str:
    """Derive from the graph when buffers live, and compare their places."""
    steps, buffers = bundle.facts["steps"], bundle.facts["buffers"]
    step_of = {node: i for i, step in enumerate(steps) for node in step["nodes"]}
    is_whole = sorted(step_of) == list(range(len(bundle.graph.nodes)))
    require(is_whole, "the steps are not the operators of the model")
    pattern = r"_IN_(\w+)\((\w+),\s+(\d+),\s+(\d+),\s+\d+\);"
    lines = re.findall(pattern, bundle.source)
    places = {name: (pool, int(at), int(size)) for pool, name, at, size in lines}
    require(set(places) == set(buffers), "the C has other buffers")
    check_tensors(bundle, step_of, places)
    lives = {name: lifetime(bundle, step_of, buffers[name]) for name in buffers}
    in_order = 0
    for name, other in combinations(places, 2):
        (pool, at, size), (other_pool, begin, length) = places[name], places[other]
        if pool != other_pool or at + size <= begin or begin + length <= at:
            continue
        first = max(lives[name][0], lives[other][0])
        last = min(lives[name][1], lives[other][1])
        if first > last:
            continue
        # An output may replace an input as it is read; a scratch buffer may not.
        is_in_order = all("tensors" in buffers[each] for each in (name, other))
        if 0 <= first < len(steps):
            is_in_order |= len(steps[first]["nodes"]) > 1
        require(first == last and is_in_order, f"{name} and {other} overlap")
        in_order += 1
    rest = f"{in_order} pairs overlap within one step, whose order rests on the runs"
    return f"{len(places)} buffers keep their values until the last use; {rest}"


def check_tensors(bundle: BundleFolder, step_of: dict[int, int], places: Any) -> None:
    """Require a buffer of sufficient size for each tensor that leaves a step."""
    nodes, tensors = bundle.graph.nodes, bundle.graph.tensors
    placed: set[int] = set()
    for name, buffer in bundle.facts["buffers"].items():
        for tensor in buffer.get("tensors", ()):
            *outer, channels = tensors[tensor].shape
            size = math.prod(outer) * len(
                bundle.network.live.get(tensor, range(channels))
            )
            fits = buffer.get("rows") or size <= places[name][2]
            require(fits, f"{name} is smaller than its tensor")
            placed.add(tensor)
    for tensor in bundle.graph.inputs:
        require(tensor in placed, f"input {tensor} has no buffer")
    for index, node in enumerate(nodes):
        for tensor in node.outputs:
            users = {step_of[i] for i, n in enumerate(nodes) if tensor in n.inputs}
            is_inside = users == {step_of[index]}
            require(tensor in placed or is_inside, f"tensor {tensor} has no buffer")


def lifetime(
    bundle: BundleFolder, step_of: dict[int, int], buffer: Any
) -> tuple[int, int]:
    """Return the first and the last step of a buffer; inputs are there before."""
    times = [buffer["scratch_of"]] if "scratch_of" in buffer else []
    for tensor in buffer.get("tensors", ()):
        for index, node in enumerate(bundle.graph.nodes):
            if tensor in (*node.inputs, *node.outputs):
                times.append(step_of[index])
        if tensor in bundle.graph.inputs:
            times.append(-1)
        if tensor in bundle.graph.outputs:
            times.append(len(bundle.facts["steps"]))
    return min(times), max(times)


def check_stack(bundle: BundleFolder) -> str:
    code, root = bundle.code, bundle.facts["run"]
    bodies: dict[str, list[int]] = {}
    for address, name in code.function.items():
        bodies.setdefault(name, []).append(address)
    depths: dict[str, int] = {}

    def depth(name: str, above: tuple[str, ...]) -> int:
        require(name not in above, f"{name} calls itself")
        if name in depths:
            return depths[name]
        own, deepest = 0, 0
        for address in bodies[name]:
            own += code.lowering(address)
            text, target = code.text[address], code.target(address)
            require(not re.match(_POINTERS, text), f"{name} calls a pointer: {text}")
            callee = name if target is None else code.function[target]
            if callee != name:
                deepest = max(deepest, depth(callee, (*above, name)))
        depths[name] = own + deepest
        return depths[name]

    used, claimed = depth(root, ()), bundle.facts["stack_bytes"]
    require(used == claimed, f"the stack needs {used} bytes, not {claimed}")
    return f"a run takes at most {used} bytes of stack, without recursion or pointers"


def check_time(bundle: BundleFolder) -> str:
    """Add up the counts of instructions, which must be those of a path.

    Each is executed at least as often as those that always continue with it, and at
    most as often as all that can.
    """
    code, facts = bundle.code, bundle.facts
    counts = {int(address): count for address, count in facts["executions"].items()}
    entry = bundle.image.symbols[facts["run"]][0] & ~1
    require(counts.get(entry), "the counts do not begin with the function of a run")
    least, most = dict.fromkeys(counts, 0), dict.fromkeys(counts, 0)
    computed: set[str] = set()
    for address, count in counts.items():
        require(address in code.text, f"there is no instruction at {address:#x}")
        target, is_call = code.target(address), re.match(_CALLS, code.text[address])
        following = [] if target is None else [target]
        if code.falls_through(address):
            following.append(code.following[address])
        for place in following:
            is_certain = is_call or len(following) == 1
            require(place in counts or not is_certain, f"{place:#x} is not counted")
            if place in counts:
                most[place] += count
                least[place] += count if is_certain else 0
        if re.match(_COMPUTED, code.text[address]):
            computed.add(code.function[address])
    for address, count in counts.items():
        is_known = code.function[address] not in computed and address != entry
        is_explained = count <= most[address] or not is_known
        is_explained &= least[address] <= count
        what = f"{address:#x}: {count} executions, {least[address]} to {most[address]}"
        require(is_explained, f"{what} are explained")
    total = sum(counts.values())
    runs = facts["vectors"]
    measured = [run["instructions"] for run in runs if "instructions" in run]
    require(max(measured) <= total, f"a run took {max(measured)} of {total} counted")
    taken = f"{len(measured)} runs took {min(measured):,} to {max(measured):,}"
    return f"a run takes at most {total:,} instructions; {taken}"


def check_vectors(bundle: BundleFolder) -> str:
    graph, layers = bundle.graph, 0
    require(bundle.facts["vectors"], "no run was recorded")
    for number, run in enumerate(bundle.facts["vectors"]):
        inputs: list[Any] = []
        for tensor, text in zip(graph.inputs, run["inputs"], strict=True):
            values = np.frombuffer(bytes.fromhex(text), np.int8).astype(np.int64)
            inputs.append(values.reshape(graph.tensors[tensor].shape))
        known = compute(graph, inputs, bundle.network.layers, Layer.compute)
        for tensor, text in zip(graph.outputs, run["outputs"], strict=True):
            found = np.frombuffer(bytes.fromhex(text), np.int8)
            distance = abs(found - known[tensor].reshape(-1)).max()
            limit = 0 if known[tensor].dtype == np.int64 else 1
            require(distance <= limit, f"run {number}: the output is {distance} away")
        for tensor, checksum in run["layers"].items():
            values, live = known[int(tensor)], bundle.network.live.get(int(tensor))
            values = values if live is None else values[..., live]
            is_same = zlib.crc32(values.astype(np.int8).tobytes()) == checksum
            require(is_same, f"run {number}: tensor {tensor} differs")
            layers += 1
    return (
        f"in {number + 1} runs, outputs and {layers} results of layers are as defined"
    )


def check_analysis(bundle: BundleFolder) -> str:
    analysis = bundle.facts.get("analysis")
    if analysis is None:
        return "nothing is claimed about run-time errors"
    text = bundle.read(analysis["log"]).decode()
    alarms = re.search(r"^ +(\d+) alarms? generated", text, re.M)
    reached = re.search(r"(\d+) statements reached \(out of (\d+)\)", text)
    require(alarms and reached, "the log of Frama-C has no summary")
    if alarms and reached:
        require(alarms[1] == "0", f"Frama-C has {alarms[1]} alarms")
        require(100 * int(reached[1]) >= 99 * int(reached[2]), f"only {reached[0]}")
    return "Frama-C's log has no alarm; repeat it with the command in facts.json"


CLAIMS = (
    check_files,
    check_sums,
    check_weights,
    check_starts,
    check_requantization,
    check_plan,
    check_stack,
    check_time,
    check_vectors,
    check_analysis,
)


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: python3 -I check_bundle.py BUNDLE")
        return 2
    try:
        bundle = BundleFolder(Path(sys.argv[1]))
        for claim in CLAIMS:
            print(f"holds: {claim(bundle)}")
    except Exception as error:  # noqa: BLE001 (whatever a wrong bundle causes)
        print(f"rejected: {type(error).__name__}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
