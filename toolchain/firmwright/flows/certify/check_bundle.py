#!/usr/bin/env python3
"""Check a proof bundle of a model's firmware: `python3 -I check_bundle.py BUNDLE`.

This file needs Python 3.10, numpy and nothing else, and starts no other program. It
derives what the firmware has to compute from the model file, by definitions of its own,
and compares that with the files of the bundle. It exits with 0 if every claim holds,
and with 1 and the reason if one does not.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
import sys
import zlib
from collections.abc import Iterator
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
    for index, node in enumerate(graph.nodes):
        require(
            node.code in known, f"operator {index} is of an unknown kind, {node.code}"
        )
        kinds = {graph.tensors[i].kind for i in (node.inputs[0], *node.outputs)}
        require(kinds == {"<i1"}, f"operator {index} has other tensors than int8")


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

    def __init__(
        self, graph: Graph, node: Node, numerics: str, live: Any = None
    ) -> None:
        """Read a layer; with `live`, only these of its channels."""
        self.node = node
        self.x, self.w = (graph.tensors[i] for i in node.inputs[:2])
        self.y = graph.tensors[node.outputs[0]]
        self.channels = self.y.shape[-1]
        self.in_double = node.code == FULLY_CONNECTED and numerics == "litert"
        rows = self.w.values.reshape(-1, self.channels).T
        if node.code != DEPTHWISE_CONV_2D:
            rows = self.w.values.reshape(self.channels, -1)
        self.rows = rows
        self.bias = np.zeros(self.channels, np.int64)
        if len(node.inputs) > 2 and node.inputs[2] >= 0:
            self.bias = graph.tensors[node.inputs[2]].values
        scales = np.resize(np.array(self.w.scales), self.channels)
        self.factors = self.x.scales[0] * scales / self.y.scales[0]
        if live is not None:
            self.channels = len(live)
            self.rows, self.bias, self.factors = (
                a[live] for a in (self.rows, self.bias, self.factors)
            )
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

    def bounds(self) -> tuple[Any, Any]:
        """Return the least and the greatest sum of each channel over all inputs."""
        low, high = -128 - self.x.zeros[0], 127 - self.x.zeros[0]
        ends = np.stack([self.rows * low, self.rows * high])
        least = self.bias + ends.min(0).sum(1)
        return least, self.bias + ends.max(0).sum(1)

    def starts(self) -> Any:
        """Return what products are added to: bias less the zero point's products."""
        return self.bias - self.x.zeros[0] * self.rows.sum(1)

    def packed_starts(self, left: int, *, is_paired: bool) -> Any:
        """Return `starts` as a table has them: odd channels may contain even ones."""
        starts = self.starts() << left
        if is_paired:
            starts[1::2] = 256 * starts[1::2] + starts[: len(starts) - 1 : 2]
        return starts

    def reach(self) -> int:
        """Bound every partial sum, in whatever order."""
        return int((abs(self.starts()) + 128 * np.abs(self.rows).sum(1)).max())

    def compute(self, x: Any) -> Any:
        x = x - self.x.zeros[0]
        if self.node.code == FULLY_CONNECTED:
            sums = x.reshape(-1, self.rows.shape[1]) @ self.rows.T
        elif self.node.code == CONV_2D:
            seen = windows(self.node, x, self.y, self.w.shape[1:3], 4)
            sums = np.einsum("byxcij,oijc->byxo", seen, self.w.values, optimize=True)
        else:
            seen = windows(self.node, x, self.y, self.w.shape[1:3], 5)
            times = self.channels // x.shape[3]
            seen = np.repeat(seen, times, axis=3)
            sums = np.einsum("byxcij,ijc->byxc", seen, self.w.values[0])
        return self.result(self.bias + sums).reshape(self.y.shape)


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


def compute(graph: Graph, inputs: list[Any], numerics: str) -> dict[int, Any]:
    """Return the values of all tensors; that of a softmax is a real number."""
    known = dict(zip(graph.inputs, inputs, strict=True))
    for node in graph.nodes:
        operands = [i for i in node.inputs if i in known]
        tensors, values = (
            [graph.tensors[i] for i in operands],
            [known[i] for i in operands],
        )
        y = graph.tensors[node.outputs[0]]
        if node.code in ACTIVATION_OPTION:
            result = Layer(graph, node, numerics).compute(values[0])
        elif node.code == AVERAGE_POOL_2D:
            result = average_pool(node, values[0], y)
        elif node.code == MAX_POOL_2D:
            result = max_pool(node, values[0], y)
        elif node.code == ADD:
            result = add(node, tensors, y, values)
        elif node.code == SOFTMAX:
            result = softmax(node, tensors[0], values[0])
        elif node.code == RESHAPE:
            result = values[0].reshape(y.shape)
        else:
            raise Rejected(f"operator {node.code} has no definition in this checker")
        known[node.outputs[0]] = result
    return known


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
    """The files of a bundle; only those that its manifest lists are read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = json.loads((folder / "bundle.json").read_text())
        self.facts = json.loads(self.read("facts.json"))
        self.live = {int(t): np.array(c, int) for t, c in self.facts["live"].items()}
        self.graph = Graph(self.read("model.tflite"))
        self.image = Firmware(self.read("image/firmware.elf"))
        text = self.read("image/disassembly.txt").decode()
        self.code = Code(self.image, text)
        sources = [self.read(name).decode() for name in self.facts["sources"]]
        self.source = "".join(sources)
        require_known(self.graph)

    def read(self, name: str) -> bytes:
        digest = self.manifest["files"].get(name)
        path = self.folder / name
        require(digest and not path.is_symlink(), f"{name} is not in the manifest")
        data = path.read_bytes()
        require(hashlib.sha256(data).hexdigest() == digest, f"{name} was changed")
        return data

    def layer(self, index: int) -> Layer:
        node = self.graph.nodes[index]
        live = self.live.get(node.outputs[0])
        return Layer(self.graph, node, self.facts["numerics"], live)


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
    for index, node in enumerate(bundle.graph.nodes):
        if node.code in ACTIVATION_OPTION:
            reach = Layer(bundle.graph, node, bundle.facts["numerics"]).reach()
            require(reach < INT32_END, f"operator {index}: sums up to {reach}")
            reaches.append(reach)
    return f"no partial sum of {len(reaches) - 1} layers exceeds {max(reaches):,}"


def check_starts(bundle: BundleFolder) -> str:
    """Compare the tables of start values."""
    for claim in bundle.facts["starts"]:
        layer = bundle.layer(claim["node"])
        starts = layer.packed_starts(claim["left"], is_paired=claim["paired"])
        table = bundle.image.constant(claim["symbol"], "<i4")
        is_same = (table[: len(starts)] == starts).all()
        require(is_same, f"operator {claim['node']}: {claim['symbol']} is not its bias")
    claimed = {claim["node"] for claim in bundle.facts["starts"]}
    nodes = enumerate(bundle.graph.nodes)
    layers = {index for index, node in nodes if node.code in ACTIVATION_OPTION}
    rest = f"; not claimed for {sorted(layers - claimed)}" if layers - claimed else ""
    return f"the biases of {len(claimed)} layers are those of the model{rest}"


def half_units(multipliers: Any) -> Any:
    """Return 0x80 >> leading zeros of each multiplier, as the C computes it."""
    return 0x80 >> (32 - np.array([int(m).bit_length() for m in multipliers]))


def parameter(bundle: BundleFolder, claim: Any, layer: Layer, multiplier: Any) -> Any:
    """Return a parameter of each channel, from the image or from the C text."""
    total = np.zeros(layer.channels, np.int64) + claim.get("values", 0)
    if literal := claim.get("literal"):
        is_there = re.search(rf"(?<!\d){abs(literal)}(?!\d)", bundle.source)
        require(is_there, f"the C has no {literal}")
        total += literal
    if symbol := claim.get("symbol"):
        table = bundle.image.constant(symbol, claim["kind"])
        total += table[claim["start"] :: claim["stride"]][: layer.channels]
    if half := claim.get("half_unit"):
        total += half * half_units(multiplier)
    return total


def check_requantization(bundle: BundleFolder) -> str:
    nodes = bundle.graph.nodes
    layers = [i for i, node in enumerate(nodes) if node.code in ACTIVATION_OPTION]
    for claim in bundle.facts["requantizations"]:
        index = claim["node"]
        layer, shift = bundle.layer(index), claim["shift"]
        check_form(bundle.source, claim["function"], shift)
        multiplier = parameter(bundle, claim["multiplier"], layer, None)
        names = "addend", "sign", "left"
        others = [parameter(bundle, claim[name], layer, multiplier) for name in names]
        addend, sign, left = others
        least, most = layer.bounds()
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
        layers.remove(index)
    proved = len(bundle.facts["requantizations"])
    rest = f"; not claimed for operators {layers}" if layers else ""
    return f"{proved} layers requantize every reachable sum as defined{rest}"


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
            size = math.prod(outer) * len(bundle.live.get(tensor, range(channels)))
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
    require(used <= claimed, f"the stack needs {used} bytes, not {claimed}")
    return f"a run takes at most {used} bytes of stack, without recursion or pointers"


def check_time(bundle: BundleFolder) -> str:
    """Add up the counts of instructions, each of which its predecessors explain."""
    code, facts = bundle.code, bundle.facts
    counts = {int(address): count for address, count in facts["executions"].items()}
    reached = dict.fromkeys(counts, 0)
    computed: set[str] = set()
    for address, count in counts.items():
        require(address in code.text, f"there is no instruction at {address:#x}")
        following = [code.target(address)]
        if code.falls_through(address):
            following.append(code.following[address])
        for place in following:
            if place in reached:
                reached[place] += count
        if re.match(_COMPUTED, code.text[address]):
            computed.add(code.function[address])
    entry = bundle.image.symbols[facts["run"]][0] & ~1
    require(counts.get(entry), "the counts do not begin with the function of a run")
    for address, count in counts.items():
        is_known = code.function[address] not in computed and address != entry
        is_explained = count <= reached[address] or not is_known
        require(
            is_explained, f"{address:#x}: executed {count} times, more than reached"
        )
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
        known = compute(graph, inputs, bundle.facts["numerics"])
        for tensor, text in zip(graph.outputs, run["outputs"], strict=True):
            found = np.frombuffer(bytes.fromhex(text), np.int8)
            distance = abs(found - known[tensor].reshape(-1)).max()
            limit = 0 if known[tensor].dtype == np.int64 else 1
            require(distance <= limit, f"run {number}: the output is {distance} away")
        for tensor, checksum in run["layers"].items():
            values, live = known[int(tensor)], bundle.live.get(int(tensor))
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
