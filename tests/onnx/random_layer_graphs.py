"""Random ONNX graphs with layers and movements, besides elementwise operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.onnx.random_float_graphs import BOOL, FLOAT, INT32, INT64, Item, TypedGraph

MOVED = (FLOAT, FLOAT, INT64, INT32, BOOL)


def random_float_model(seed: int) -> bytes:
    """Return the model of the seed, which also determines its opset."""
    return LayerGraph(seed).data()


def _is_image(shape: tuple[int, ...]) -> bool:
    return len(shape) == 4 and min(shape[2:]) >= 2


class LayerGraph(TypedGraph):
    """A graph of all operators."""

    LAYERS = (
        *TypedGraph.LAYERS,
        *("conv", "conv", "transposed_conv", "gemm", "matmul", "pool", "whole_pool"),
        *("normalization", "resize", "recurrent", "einsum"),
        *("transpose", "reshape", "concat", "slice", "gather", "pad", "split"),
        *("squeeze", "tile", "expand", "blocks", "scatter", "one_hot"),
    )

    def floats(self, *shape: int, scale: float = 1.0) -> str:
        return self.net.random(*shape, scale=scale)

    # ---- layers ----------------------------------------------------------------------

    def conv(self) -> None:
        x = self.pick(FLOAT, fits=lambda s: len(s) in (3, 4) and min(s[2:]) >= 2)
        if x is None:
            return
        channels, extents = x.shape[1], x.shape[2:]
        group = self.choice([1, 1, channels])
        filters = group * self.choice([1, 2, 3])
        size = [int(self.rng.integers(1, min(3, n) + 1)) for n in extents]
        attrs: dict[str, Any] = {"group": group, "kernel_shape": size}
        attrs["strides"] = [self.choice([1, 1, 2]) for _ in extents]
        form = self.choice(["NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"])
        if form == "NOTSET":
            attrs["pads"] = [int(self.rng.integers(0, 2)) for _ in [*size, *size]]
            if all(2 * (k - 1) < n for k, n in zip(size, extents, strict=True)):
                attrs["dilations"] = [self.choice([1, 1, 2]) for _ in extents]
        else:
            attrs["auto_pad"] = form
        w = self.floats(filters, channels // group, *size, scale=0.4)
        bias = [self.floats(filters)] if self.chance(0.7) else []
        self.add("Conv", [x, w, *bias], is_exact=False, **attrs)

    def transposed_conv(self) -> None:
        x = self.pick(FLOAT, fits=_is_image)
        if x is None:
            return
        size, stride = self.ints(1, 4, 2), self.ints(1, 3, 2)
        attrs: dict[str, Any] = {"strides": stride, "kernel_shape": size}
        if min(size) > 1 and self.chance(0.4):
            attrs["pads"] = self.ints(0, 2, 4)
        if min(stride) > 1 and self.chance(0.4):
            attrs["output_padding"] = self.ints(0, 2, 2)
        w = self.floats(x.shape[1], 2, *size, scale=0.4)
        self.add("ConvTranspose", [x, w, self.floats(2)], is_exact=False, **attrs)

    def gemm(self) -> None:
        x = self.pick(FLOAT, fits=lambda s: len(s) == 2)
        if x is None:
            return
        turned, transposed = int(self.chance(0.2)), int(self.chance(0.5))
        depth, rows = x.shape[1 - turned], x.shape[turned]
        w = self.floats(*((5, depth) if transposed else (depth, 5)), scale=0.5)
        shape = self.choice([(5,), (1, 5), (rows, 1), (rows, 5), (1,)])
        bias = [self.floats(*shape)] if self.opset < 11 or self.chance(0.7) else []
        attrs = {"transA": turned, "transB": transposed}
        if self.chance(0.3):
            attrs |= {"alpha": 0.5, "beta": 1.5}
        self.add("Gemm", [x, w, *bias], is_exact=False, **attrs)

    def matmul(self) -> None:
        x = self.pick(FLOAT)
        if x is None:
            return
        right = [
            i
            for i in self.items
            if i.dtype == FLOAT and len(i.shape) == len(x.shape) > 1
            if (*i.shape[:-2], i.shape[-2]) == (*x.shape[:-2], x.shape[-1])
        ]
        w = self.floats(x.shape[-1], int(self.rng.integers(1, 6)), scale=0.5)
        y = self.choice(right) if right and self.chance(0.6) else w
        self.add("MatMul", [x, y], is_exact=False)

    def pool(self) -> None:
        x = self.pick(FLOAT, fits=_is_image)
        if x is None:
            return
        op = self.choice(["MaxPool", "MaxPool", "AveragePool", "LpPool"])
        size = [int(self.rng.integers(1, min(3, n) + 1)) for n in x.shape[2:]]
        attrs: dict[str, Any] = {"kernel_shape": size, "strides": self.ints(1, 3, 2)}
        if min(size) > 1 and self.chance(0.3):
            attrs["auto_pad"] = self.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])
        elif min(size) > 1:
            attrs["pads"] = self.ints(0, 2, 4)
        since = 18 if op == "LpPool" else 10
        may_round_up = "auto_pad" not in attrs and min(size) > 1
        if self.opset >= since and may_round_up and self.chance(0.3):
            attrs["ceil_mode"] = 1
        if op == "AveragePool":
            attrs["count_include_pad"] = int(self.chance(0.5))
        self.add(op, [x], is_exact=op == "MaxPool", **attrs)

    def whole_pool(self) -> None:
        x = self.pick(FLOAT, fits=lambda s: len(s) > 2)
        ops = ["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"]
        op = self.choice(ops if self.opset < 22 else ops[:2])
        if x is not None:
            self.add(op, [x], is_exact=op == "GlobalMaxPool")

    def normalization(self) -> None:
        x = self.pick(FLOAT, fits=lambda s: len(s) == 4 and np.prod(s[2:]) > 1)
        if x is None:
            return
        count = x.shape[1]
        match self.choice(["batch", "instance", "lrn", "lp", "layer", "mean"]):
            case "batch":
                ends = ((0.5, 1.5), (-0.3, 0.3), (-0.2, 0.2), (0.5, 2.0))
                vectors = [
                    self.constant(self.rng.uniform(*pair, count), FLOAT)
                    for pair in ends
                ]
                self.add("BatchNormalization", [x, *vectors], is_exact=False)
            case "instance":
                pair = [self.floats(count), self.floats(count)]
                attrs = {"epsilon": 0.1}
                self.add("InstanceNormalization", [x, *pair], is_exact=False, **attrs)
            case "lrn":
                attrs = {"size": 3, "alpha": 0.1}
                self.add("LRN", [x], is_exact=False, **attrs)
            case "layer" if self.opset >= 17:
                pair = [self.floats(x.shape[-1]), self.floats(x.shape[-1])]
                attrs = {"epsilon": 0.1}
                self.add("LayerNormalization", [x, *pair], is_exact=False, **attrs)
            case _:
                x = self.pick(FLOAT, exact=True)
                if x is not None:
                    axis = len(x.shape) - 1
                    self.add("LpNormalization", [x], is_exact=False, axis=axis)

    def resize(self) -> None:
        x = self.pick(FLOAT, fits=_is_image)
        if x is None:
            return
        scales = [1.0, 1.0, *(self.choice([1.0, 2.0, 1.5]) for _ in "hw")]
        mode = self.choice(["nearest", "linear"])
        attrs: dict[str, Any] = {"mode": mode}
        is_exact = mode == "nearest"
        if self.opset < 9:
            self.add("Upsample", [x], is_exact=is_exact, scales=scales, **attrs)
            return
        factors = self.constant(scales, FLOAT)
        if self.opset == 9 or self.opset == 10:
            op = "Upsample" if self.opset == 9 else "Resize"
            self.add(op, [x, factors], is_exact=is_exact, **attrs)
            return
        forms = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
        attrs["coordinate_transformation_mode"] = self.choice(forms)
        if mode == "nearest":
            attrs["nearest_mode"] = self.choice(["floor", "round_prefer_floor", "ceil"])
        roi = self.constant([], FLOAT) if self.opset < 13 else ""
        self.add("Resize", [x, roi, factors], is_exact=is_exact, **attrs)

    def recurrent(self) -> None:
        x = self.pick(FLOAT, fits=lambda s: len(s) == 3)
        if x is None:
            return
        op, gates = self.choice([("RNN", 1), ("GRU", 3), ("LSTM", 4)])
        hidden, direction = 3, self.choice(["forward", "reverse", "bidirectional"])
        sides = 2 if direction == "bidirectional" else 1
        w = self.floats(sides, gates * hidden, x.shape[2], scale=0.5)
        r = self.floats(sides, gates * hidden, hidden, scale=0.5)
        bias = self.floats(sides, 2 * gates * hidden, scale=0.5)
        attrs: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
        if op == "GRU":
            attrs["linear_before_reset"] = int(self.chance(0.5))
        self.add(op, [x, w, r, bias], is_exact=False, outputs=2, **attrs)

    def einsum(self) -> None:
        x = self.pick(FLOAT, fits=lambda s: len(s) in (2, 3))
        if x is not None and self.opset >= 12:
            w = self.floats(x.shape[-1], 3)
            self.add("Einsum", [x, w], is_exact=False, equation="...i,ij->...j")

    # ---- movement --------------------------------------------------------------------

    def transpose(self) -> None:
        x = self.pick(*MOVED)
        if x is not None:
            order = [int(k) for k in self.rng.permutation(len(x.shape))]
            self.add("Transpose", [x], perm=order)

    def reshape(self) -> None:
        x = self.pick(*MOVED)
        if x is None:
            return
        if self.chance(0.3) and (x.dtype == FLOAT or self.opset >= 9):
            self.add("Flatten", [x], axis=int(self.rng.integers(len(x.shape))))
            return
        shape = self.choice([[-1], [x.shape[0], -1], [-1, x.shape[-1]], [1, 0, -1]])
        if len(shape) < 3 or len(x.shape) > 1:
            self.add("Reshape", [x, self.constant(shape)])

    def concat(self) -> None:
        x = self.pick(*MOVED)
        if x is None:
            return
        axis = int(self.rng.integers(len(x.shape)))

        def rest(item: Item) -> tuple[int, ...]:
            return (*item.shape[:axis], *item.shape[axis + 1 :])

        alike = [
            i
            for i in self.items
            if (i.dtype, len(i.shape), rest(i)) == (x.dtype, len(x.shape), rest(x))
        ]
        self.add("Concat", [x, self.choice(alike)], axis=axis)

    def slice(self) -> None:
        x = self.pick(*MOVED)
        if x is None:
            return
        axis = int(self.rng.integers(len(x.shape)))
        first = int(self.rng.integers(x.shape[axis]))
        last = int(self.rng.integers(first + 1, x.shape[axis] + 1))
        if self.opset < 10:
            self.add("Slice", [x], starts=[first], ends=[last], axes=[axis])
            return
        numbers = [first, last, axis, self.choice([1, 1, 2])]
        if self.chance(0.3):
            numbers = [last - 1, -x.shape[axis] - 1, axis, -1]
        self.add("Slice", [x, *(self.constant([number]) for number in numbers)])

    def gather(self) -> None:
        x = self.pick(*MOVED)
        if x is None:
            return
        axis = int(self.rng.integers(len(x.shape)))
        found = [i for i in self.items if 0 < i.limit <= x.shape[axis]]
        if found and self.chance(0.7):
            index: Item | str = self.choice(found)
            self.add("Gather", [x, index], x.dtype, axis=axis)
            return
        low = -x.shape[axis] if self.opset >= 11 else 0
        shape = (*x.shape[:axis], 2, *x.shape[axis + 1 :])
        if self.opset >= 11 and self.chance(0.4):
            places = self.constant(self.rng.integers(low, x.shape[axis], shape))
            self.add("GatherElements", [x, places], axis=axis)
            return
        places = self.constant(self.rng.integers(low, x.shape[axis], 3))
        self.add("Gather", [x, places], axis=axis)

    def pad(self) -> None:
        x = self.pick(FLOAT, fits=lambda s: min(s) > 1)
        mode = self.choice(["constant", "reflect", "edge"])
        if x is None:
            return
        if mode != "constant" and len(x.shape) > 4:
            return
        pads = [int(self.rng.integers(0, 2)) for _ in [*x.shape, *x.shape]]
        if self.opset < 11:
            self.add("Pad", [x], mode=mode, pads=pads)
            return
        value = [self.constant(0.75, FLOAT)] if mode == "constant" else []
        self.add("Pad", [x, self.constant(pads), *value], mode=mode)

    def split(self) -> None:
        x = self.pick(*MOVED, fits=lambda s: max(s) > 1)
        if x is None:
            return
        axis = int(np.argmax(x.shape))
        first = int(self.rng.integers(1, x.shape[axis]))
        sizes = [first, x.shape[axis] - first]
        if self.opset < 13:
            self.add("Split", [x], outputs=2, axis=axis, split=sizes)
        else:
            self.add("Split", [x, self.constant(sizes)], outputs=2, axis=axis)

    def squeeze(self) -> None:
        x = self.pick(*MOVED)
        if x is None:
            return
        ones = [k for k, n in enumerate(x.shape) if n == 1]
        op, axis = "Unsqueeze", int(self.rng.integers(len(x.shape) + 1))
        if ones and len(x.shape) > 1 and self.chance(0.5):
            op, axis = "Squeeze", self.choice(ones)
        elif len(x.shape) > 4:
            return
        if self.opset < 13:
            self.add(op, [x], axes=[axis])
        else:
            self.add(op, [x, self.constant([axis])])

    def tile(self) -> None:
        x = self.pick(*MOVED)
        if x is not None:
            counts = [self.choice([1, 1, 2]) for _ in x.shape]
            self.add("Tile", [x, self.constant(counts)])

    def expand(self) -> None:
        x = self.pick(*MOVED)
        if x is not None and self.opset >= 8:
            shape = [self.choice([1, 3]) if n == 1 else n for n in x.shape]
            self.add("Expand", [x, self.constant(shape)])

    def blocks(self) -> None:
        x = self.pick(FLOAT, fits=_is_image)
        if x is None:
            return
        if x.shape[1] % 4 == 0:
            mode = {"mode": self.choice(["CRD", "DCR"])} if self.opset >= 11 else {}
            self.add("DepthToSpace", [x], blocksize=2, **mode)
        elif x.shape[2] % 2 == 0 and x.shape[3] % 2 == 0:
            self.add("SpaceToDepth", [x], blocksize=2)

    def scatter(self) -> None:
        x = self.pick(FLOAT)
        if x is None or self.opset < 11:
            return
        axis = int(self.rng.integers(len(x.shape)))
        shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
        places = self.constant(self.rng.integers(0, x.shape[axis], shape))
        operands = [x, places, self.floats(*shape)]
        self.add("ScatterElements", operands, axis=axis)

    def one_hot(self) -> None:
        found = [i for i in self.items if i.limit and i.dtype == INT64]
        if not found or self.opset < 9:
            return
        x = self.choice(found)
        ends = [self.constant([x.limit]), self.constant([0, 1], FLOAT)]
        self.add("OneHot", [x, *ends], FLOAT, axis=-1)
