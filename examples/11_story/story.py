"""Build story.onnx, a step of the 260 K-parameter story model, and words.h, its tokens.

A run takes a token and its position and returns the most likely next token. The weights
are those of llama2.c (github.com/karpathy/llama2.c), as int8; the cache of keys and
values is int8 and state.
"""

from __future__ import annotations

import argparse
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from onnx import TensorProto, helper, numpy_helper, save_model

Array = np.ndarray[Any, Any]
POSITIONS = 200
EPSILON = 1e-5
START = 1
"""The token before a story."""
MARGIN = 1.1
"""The cache's range, relative to the keys and values of the calibration story."""


@dataclass(frozen=True)
class Checkpoint:
    """The weights of a llama2.c file of version 0; matrices are [outputs, inputs]."""

    heads: int
    kv_heads: int
    layers: int
    tensors: dict[str, Array]

    @classmethod
    def read(cls, path: Path) -> Checkpoint:
        data = path.read_bytes()
        width, hidden, layers, heads, kv_heads, words, _ = struct.unpack(
            "7i", data[:28]
        )
        cached = width // heads * kv_heads
        shapes = {
            "embedding": (words, width),
            "attention_norm": (layers, width),
            "query": (layers, width, width),
            "key": (layers, cached, width),
            "value": (layers, cached, width),
            "output": (layers, width, width),
            "forward_norm": (layers, width),
            "gate": (layers, hidden, width),
            "down": (layers, width, hidden),
            "up": (layers, hidden, width),
            "norm": (width,),
        }
        numbers, at, tensors = np.frombuffer(data[28:], "<f4"), 0, {}
        for name, shape in shapes.items():
            size = int(np.prod(shape))
            tensors[name] = numbers[at : at + size].reshape(shape)
            at += size
        return cls(heads, kv_heads, layers, tensors)

    @property
    def head_size(self) -> int:
        return self.tensors["embedding"].shape[1] // self.heads

    def angles(self) -> Array:
        """Return the angle of each position and pair of channels."""
        size = self.head_size
        steps = 1 / np.power(
            np.float32(10000), np.arange(0, size, 2, np.float32) / size
        )
        return np.arange(POSITIONS, dtype=np.float32)[:, None] * steps.astype(
            np.float32
        )


# ---- the model in floats, which calibrates the cache ---------------------------------


def normalize(x: Array, scale: Array) -> Array:
    return np.asarray(scale * x / np.sqrt(np.mean(x * x) + np.float32(EPSILON)))


def rotate(x: Array, angles: Array) -> Array:
    pairs = x.reshape(-1, len(angles), 2)
    cosine, sine = np.cos(angles), np.sin(angles)
    a, b = pairs[..., 0], pairs[..., 1]
    return np.stack([a * cosine - b * sine, a * sine + b * cosine], -1).reshape(x.shape)


def tell_story(model: Checkpoint, steps: int) -> tuple[list[int], Array]:
    """Return likeliest tokens, and keys and values [layer, position, 2, channel]."""
    t, size, group = model.tensors, model.head_size, model.heads // model.kv_heads
    cache = np.zeros((model.layers, steps, 2, model.kv_heads * size), np.float32)
    token, tokens, angles = START, [], model.angles()
    for position in range(steps):
        x = t["embedding"][token]
        for layer in range(model.layers):
            row = normalize(x, t["attention_norm"][layer])
            query = rotate(t["query"][layer] @ row, angles[position])
            cache[layer, position, 0] = rotate(t["key"][layer] @ row, angles[position])
            cache[layer, position, 1] = t["value"][layer] @ row
            seen = cache[layer, : position + 1].reshape(position + 1, 2, -1, size)
            seen = np.repeat(seen, group, 2)
            scores = (
                np.einsum("hd,phd->hp", query.reshape(-1, size), seen[:, 0]) / size**0.5
            )
            weights = np.exp(scores - scores.max(1, keepdims=True))
            weights /= weights.sum(1, keepdims=True)
            mixed = np.einsum("hp,phd->hd", weights, seen[:, 1]).reshape(-1)
            x = x + t["output"][layer] @ mixed
            row = normalize(x, t["forward_norm"][layer])
            gate = t["gate"][layer] @ row
            x = x + t["down"][layer] @ (
                gate / (1 + np.exp(-gate)) * (t["up"][layer] @ row)
            )
        token = int(np.argmax(t["embedding"] @ normalize(x, t["norm"])))
        tokens.append(token)
    return tokens, cache


# ---- the model as ONNX ---------------------------------------------------------------


@dataclass(frozen=True)
class Scaling:
    """The int8 quantization of keys or values: scale and zero point by channel."""

    scales: Array
    points: Array

    @classmethod
    def of(cls, seen: Array) -> Scaling:
        low, high = (
            np.minimum(seen.min(0), 0) * MARGIN,
            np.maximum(seen.max(0), 0) * MARGIN,
        )
        scales = ((high - low) / 255).astype(np.float32)
        return cls(
            scales, np.clip(np.rint(-low / scales) - 128, -128, 127).astype(np.int8)
        )

    def part(self, channels: slice) -> Scaling:
        return Scaling(self.scales[channels], self.points[channels])

    def quantize(self, reals: Array) -> Array:
        return np.clip(np.rint(reals / self.scales) + self.points, -128, 127).astype(
            np.int8
        )


@dataclass(frozen=True)
class Graph:
    """Collects the nodes, constants and states of an ONNX graph."""

    is_float: bool
    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    states: dict[str, tuple[str, Array]] = field(default_factory=dict)

    def constant(self, name: str, values: Array) -> str:
        self.constants[name] = np.ascontiguousarray(values)
        return name

    def node(self, op: str, inputs: Sequence[str], name: str, **attrs: Any) -> str:
        self.nodes.append(
            helper.make_node(op, list(inputs), [name], name=name, **attrs)
        )
        return name

    def product(self, x: str, weights: Array, name: str) -> str:
        """Multiply by weights [outputs, inputs]; both take 8 bits, x when it runs."""
        if self.is_float:
            return self.node(
                "MatMul", [x, self.constant(f"{name}.weights", weights.T)], name
            )
        scales = (np.abs(weights).max(1) / 127).astype(np.float32)
        steps = np.rint(weights / scales[:, None]).astype(np.int8)
        parts = [f"{x}.int", f"{x}.scale", f"{x}.zero"]
        if not any(parts[0] in node.output for node in self.nodes):
            self.nodes.append(helper.make_node("DynamicQuantizeLinear", [x], parts))
        w = self.constant(f"{name}.weights", steps.T)
        total = self.node("MatMulInteger", [parts[0], w, parts[2]], f"{name}.sum")
        total = self.node("Cast", [total], f"{name}.real", to=TensorProto.FLOAT)
        scales = self.constant(f"{name}.scales", scales)
        scale = self.node("Mul", [parts[1], scales], f"{name}.scale")
        return self.node("Mul", [total, scale], name)

    def normalize(self, x: str, scale: Array, name: str) -> str:
        scale_name = self.constant(f"{name}.weights", scale)
        return self.node("RMSNormalization", [x, scale_name], name, epsilon=EPSILON)

    def split(
        self, x: str, sizes: Sequence[int], names: Sequence[str]
    ) -> Sequence[str]:
        counts = self.constant(f"{x}.sizes", np.array(sizes, np.int64))
        self.nodes.append(helper.make_node("Split", [x, counts], names, axis=2))
        return names

    def remember(self, name: str, row: str, rest: Array) -> str:
        """Write a row at the position into a state of POSITIONS rows like `rest`."""
        table = np.broadcast_to(rest, (1, POSITIONS, *np.shape(rest)))
        self.states[name] = (f"{name}.next", table)
        return self.node(
            "TensorScatter", [name, row, "position"], f"{name}.next", axis=1
        )

    def real(self, x: str, scaling: Scaling, name: str) -> str:
        operands = [x, *self._scaling(scaling, name)]
        return self.node("DequantizeLinear", operands, f"{name}.real", axis=2)

    def cached(self, x: str, scaling: Scaling, name: str) -> str:
        """Return all rows so far of keys or values x, kept with 8 bits in the state."""
        row = self.node(
            "QuantizeLinear", [x, *self._scaling(scaling, name)], f"{name}.row", axis=2
        )
        return self.real(self.remember(name, row, scaling.points), scaling, name)

    def _scaling(self, scaling: Scaling, name: str) -> Sequence[str]:
        return (
            self.constant(f"{name}.scales", scaling.scales),
            self.constant(f"{name}.points", scaling.points),
        )


def rotary(g: Graph, x: str, heads: int, name: str) -> str:
    operands = [x, "cosine", "sine", "place"]
    return g.node("RotaryEmbedding", operands, name, interleaved=1, num_heads=heads)


def attend(
    g: Graph, operands: Sequence[str], heads: int, kv_heads: int, name: str
) -> str:
    """Attend to the keys and values in use; the rest of the cache is ignored."""
    return g.node(
        "Attention",
        [*operands, "", "", "", "length"],
        name,
        q_num_heads=heads,
        kv_num_heads=kv_heads,
    )


def first_attention(
    g: Graph,
    model: Checkpoint,
    query: str,
    key: str,
    scalings: Sequence[Scaling],
    name: str,
) -> str:
    """Attend in layer 0, one head of the cache at a time.

    Its values depend on the token alone: the state keeps the tokens, and a table has
    their values.
    """
    t, size, group = model.tensors, model.head_size, model.heads // model.kv_heads
    rows = np.stack([normalize(x, t["attention_norm"][0]) for x in t["embedding"]])
    values = scalings[1].quantize(rows @ t["value"][0].T)
    history = g.remember("tokens", "token", np.zeros(1, np.int32))
    history = g.node(
        "Squeeze", [history, g.constant("last", np.array([2]))], f"{name}.tokens"
    )
    heads = range(model.kv_heads)
    queries = g.split(
        query, [group * size for _ in heads], [f"{query}{h}" for h in heads]
    )
    keys = g.split(key, [size for _ in heads], [f"{key}{h}" for h in heads])
    results = []
    for head in heads:
        channels = slice(head * size, (head + 1) * size)
        key_scaling, value_scaling = (scaling.part(channels) for scaling in scalings)
        cache = g.cached(keys[head], key_scaling, f"{name}.keys{head}")
        table = g.constant(f"{name}.values{head}", values[:, channels])
        value = g.node("Gather", [table, history], f"{name}.values{head}.rows")
        value = g.real(value, value_scaling, f"{name}.values{head}")
        results.append(
            attend(g, [queries[head], cache, value], group, 1, f"{name}.{head}")
        )
    return g.node("Concat", results, f"{name}.heads", axis=2)


def build(model: Checkpoint, is_float: bool, has_logits: bool) -> Any:
    """Return the ModelProto of one step."""
    t, g = model.tensors, Graph(is_float)
    _, seen = tell_story(model, POSITIONS)
    angles = model.angles()
    g.constant("cosine", np.cos(angles))
    g.constant("sine", np.sin(angles))
    g.node("Add", ["position", g.constant("one", np.array([1], np.int64))], "length")
    g.node("Unsqueeze", ["position", g.constant("first", np.array([0]))], "place")
    g.node("Gather", [g.constant("embedding", t["embedding"]), "token"], "embedded")
    x = g.node("Squeeze", ["embedded", g.constant("third", np.array([2]))], "x")
    for layer in range(model.layers):
        x = add_layer(
            g, model, layer, x, [Scaling.of(seen[layer, :, k]) for k in range(2)]
        )
    row = g.normalize(x, t["norm"], "norm")
    g.node("MatMul", [row, g.constant("classes", t["embedding"].T)], "logits")
    g.node("ArgMax", ["logits"], "next", axis=2, keepdims=0)
    return _model(g, model, has_logits)


def add_layer(
    g: Graph, model: Checkpoint, layer: int, x: str, scalings: Sequence[Scaling]
) -> str:
    weights = {
        name: tensor[layer]
        for name, tensor in model.tensors.items()
        if tensor.ndim == 3
    }
    t, width = model.tensors, model.tensors["embedding"].shape[1]
    cached, name = model.kv_heads * model.head_size, f"layer{layer}"
    row = g.normalize(x, t["attention_norm"][layer], f"{name}.attention.norm")
    used = ["query", "key", "value"] if layer else ["query", "key"]
    joined = g.product(
        row, np.concatenate([weights[k] for k in used]), f"{name}.joined"
    )
    parts = g.split(
        joined, [width, cached, cached][: len(used)], [f"{name}.{k}" for k in used]
    )
    query = rotary(g, parts[0], model.heads, f"{name}.rotated_query")
    key = rotary(g, parts[1], model.kv_heads, f"{name}.rotated_key")
    if layer:
        key = g.cached(key, scalings[0], f"{name}.keys")
        value = g.cached(parts[2], scalings[1], f"{name}.values")
        mixed = attend(
            g, [query, key, value], model.heads, model.kv_heads, f"{name}.attention"
        )
    else:
        mixed = first_attention(g, model, query, key, scalings, f"{name}.attention")
    x = g.node(
        "Add", [x, g.product(mixed, weights["output"], f"{name}.output")], f"{name}.x"
    )
    row = g.normalize(x, t["forward_norm"][layer], f"{name}.forward.norm")
    joined = g.product(
        row, np.concatenate([weights["gate"], weights["up"]]), f"{name}.forward"
    )
    hidden = len(weights["up"])
    gate, up = g.split(joined, [hidden, hidden], [f"{name}.gate", f"{name}.up"])
    gated = g.node(
        "Mul", [g.node("Swish", [gate], f"{name}.swish"), up], f"{name}.gated"
    )
    down = g.product(gated, weights["down"], f"{name}.down")
    return g.node("Add", [x, down], f"{name}.result")


def _model(g: Graph, model: Checkpoint, has_logits: bool) -> Any:
    info, words = helper.make_tensor_value_info, len(model.tensors["embedding"])
    states = {
        name: helper.np_dtype_to_tensor_dtype(table.dtype)
        for name, (_, table) in g.states.items()
    }
    inputs = [
        info("token", TensorProto.INT32, [1, 1, 1]),
        info("position", TensorProto.INT64, [1]),
    ]
    inputs += [
        info(name, kind, g.states[name][1].shape) for name, kind in states.items()
    ]
    outputs = [info("next", TensorProto.INT64, [1, 1])]
    outputs += [info("logits", TensorProto.FLOAT, [1, 1, words])] * has_logits
    outputs += [
        info(g.states[k][0], kind, g.states[k][1].shape) for k, kind in states.items()
    ]
    tensors = g.constants | {name: table for name, (_, table) in g.states.items()}
    constants = [
        numpy_helper.from_array(np.array(array), name)
        for name, array in tensors.items()
    ]
    graph = helper.make_graph(g.nodes, "story", inputs, outputs, constants)
    made = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10
    )
    # A state's input in the next run is its output in this one.
    helper.set_model_props(
        made, {f"firmwright.state.{k}": v for k, (v, _) in g.states.items()}
    )
    return made


def token_texts(path: Path) -> list[str]:
    """Return the text of each token; a token such as <0x0A> is a byte."""
    data, at, texts = path.read_bytes(), 4, []
    while at < len(data):
        _, size = struct.unpack_from("<fi", data, at)
        text = data[at + 8 : at + 8 + size].decode()
        if len(text) == 6 and text.startswith("<0x"):
            value = int(text[3:5], 16)
            text = chr(value) if 32 <= value < 127 or value == 10 else ""
        texts.append(text)
        at += 8 + size
    return texts


def words_header(texts: list[str]) -> str:
    rows = [f"    {as_c_string(text)}," for text in texts]
    return "\n".join(
        [
            "/* The text of each token, written by story.py. */",
            f"#define POSITIONS {POSITIONS} /* tokens of the longest story */",
            f"static const char *const words[{len(texts)}] = {{",
            *rows,
            "};",
            "",
        ]
    )


def as_c_string(text: str) -> str:
    plain = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\r\\n")
    return (
        '"'
        + "".join(
            c if ord(c) < 127 else f"\\{b:03o}" for c in plain for b in c.encode()
        )
        + '"'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    here = Path(__file__).resolve().parent
    parser.add_argument(
        "--weights", type=Path, default=here, help="folder of the weights"
    )
    parser.add_argument(
        "--float", action="store_true", help="keep the weights in float32"
    )
    parser.add_argument("--logits", action="store_true", help="return all logits too")
    parser.add_argument(
        "-o", "--output", type=Path, default=here, help="folder of the results"
    )
    options = parser.parse_args()
    if not (options.weights / "stories260K.bin").is_file():
        sys.exit("the weights are missing; fetch.py downloads them")
    model = Checkpoint.read(options.weights / "stories260K.bin")
    save_model(
        build(model, options.float, options.logits), options.output / "story.onnx"
    )
    texts = token_texts(options.weights / "tok512.bin")
    (options.output / "words.h").write_text(words_header(texts), encoding="ascii")
    print(f"story.onnx and words.h are in {options.output}")


if __name__ == "__main__":
    main()
