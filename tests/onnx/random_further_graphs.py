"""Random ONNX graphs with operators of transforms, boxes, bits and extensions.

Their nodes are checked by ONNX Runtime alone: the package onnx does not infer the
shapes of operators of other domains.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnx import TensorProto
from tests.onnx.onnx_models import LEARNED
from tests.onnx.random_float_graphs import BOOL, CODES, FLOAT, INT32, INT64, Item
from tests.onnx.random_rare_graphs import RareGraph

INVERSES = {"Acos": 7, "Asin": 7, "Atanh": 9, "Tan": 7}
"""Functions of numbers between -1 and 1, with their first opset."""
MICROSOFT = "com.microsoft"


def random_further_model(seed: int) -> bytes:
    """Return the model of the seed, which also determines its opset."""
    return FurtherGraph(seed).data()


class FurtherGraph(RareGraph):
    """A graph in which many layers are operators that `RareGraph` has not."""

    LAYERS = (
        *RareGraph.LAYERS,
        *("inverse", "shifted_bits", "types", "sizes", "integer_conv", "columns"),
        *("spectrum", "determinant", "unpooled", "boxes", "older_scatter", "ngrams"),
        *("rotation", "attention", "deformed", "microsoft", "learned", "counted"),
        *("rotation", "attention", "spectrum", "microsoft", "learned", "counted"),
    )

    def raw(self, op: str, *inputs: Any, **attrs: Any) -> Any:
        """Add a node without an item; return the names of its results."""
        read = [item for item in inputs if isinstance(item, Item)]
        self.used |= {item.name for item in read}
        names = [item.name if isinstance(item, Item) else item for item in inputs]
        return self.net.node(op, *names, **attrs)

    def keep(
        self, name: str, dtype: str, shape: tuple[int, ...], *, is_exact: bool = False
    ) -> Item:
        """Let later layers read a result."""
        item = Item(name, dtype, shape, is_exact or dtype != FLOAT)
        self.items.append(item)
        return item

    def image(self, least: int = 2) -> Item | None:
        return self.pick(FLOAT, fits=lambda s: len(s) == 4 and min(s[2:]) >= least)

    # ---- elementwise -----------------------------------------------------------------

    def inverse(self) -> None:
        known = [op for op, since in INVERSES.items() if since <= self.opset]
        op, x = self.choice([*known, "Acosh"]), self.pick(FLOAT, exact=True)
        if x is None or (op == "Acosh" and self.opset < 9):
            return
        if op == "Acosh":
            y = self.raw("Add", self.raw("Abs", x), self.constant(1.25, FLOAT))
        else:
            y = self.raw("Mul", self.raw("Tanh", x), self.constant(0.875, FLOAT))
        self.keep(self.raw(op, y), FLOAT, x.shape)

    def shifted_bits(self) -> None:
        x = self.pick(INT64, INT32)
        if x is None or self.opset < 11:
            return
        if self.opset >= 18 and self.chance(0.4):
            self.add("BitwiseNot", [x])
            return
        kind = self.choice([TensorProto.UINT32, TensorProto.UINT64, TensorProto.UINT8])
        bits = self.raw("Cast", x, to=kind)
        count = self.raw("Cast", self.constant(self.ints(0, 8, 1)), to=kind)
        way = self.choice(["LEFT", "RIGHT"])
        shifted = self.raw("BitShift", bits, count, direction=way)
        self.keep(self.raw("Cast", shifted, to=TensorProto.INT64), INT64, x.shape)

    def types(self) -> None:
        """Compute in doubles, or in the type of another value."""
        x = self.pick(FLOAT, exact=True)
        if x is None:
            return
        if self.opset >= 15 and self.chance(0.4):
            other = self.choice([FLOAT, INT64, INT32, BOOL])
            like = self.constant(1, other)
            self.keep(self.raw("CastLike", x, like), other, x.shape, is_exact=True)
            return
        kind = TensorProto.DOUBLE if self.chance(0.7) else TensorProto.FLOAT16
        y = self.raw("Cast", x, to=kind)
        z = self.raw("Mul", y, self.raw("Add", y, y))
        if kind == TensorProto.DOUBLE:
            z = self.raw(self.choice(["Relu", "Sigmoid", "Tanh"]), z)
            self.keep(self.raw("Cast", z, to=TensorProto.FLOAT), FLOAT, x.shape)
        else:
            self.finals.append(z)

    def sizes(self) -> None:
        x = self.pick(FLOAT, INT64)
        if x is None:
            return
        op = self.choice(["Size", "Dropout", "Constant", "EyeLike", "Swish"])
        if op == "Size":
            self.keep(self.raw(op, x), INT64, ())
        elif op == "Dropout" and x.dtype == FLOAT:
            self.add(op, [x])
        elif op == "Constant" and self.opset >= 12:
            name = self.raw(op, value_floats=[0.5, -1.5])
            self.keep(name, FLOAT, (2,), is_exact=True)
        elif op == "EyeLike" and self.opset >= 9 and len(x.shape) == 2:
            attrs = {"dtype": CODES[FLOAT], "k": self.choice([0, 1, -1])}
            self.keep(self.raw(op, x, **attrs), FLOAT, x.shape, is_exact=True)
        elif op == "Swish" and self.opset >= 24 and x.dtype == FLOAT:
            self.add(op, [x], is_exact=False, alpha=self.choice([1.0, 1.5]))

    # ---- images ----------------------------------------------------------------------

    def integer_conv(self) -> None:
        x = self.pick(FLOAT, exact=True, fits=lambda s: len(s) == 4 and min(s[2:]) > 1)
        if x is None or self.opset < 11:
            return
        w = self.net.weight(self.rng.integers(0, 256, (3, x.shape[1], 2, 2), np.uint8))
        q, scale, point = self.raw("DynamicQuantizeLinear", x, outputs=3)
        zero = self.net.weight(np.array(self.rng.integers(0, 256), np.uint8))
        pads = self.choice([[0] * 4, [1, 0, 0, 1]])
        y = self.raw("ConvInteger", q, w, point, zero, pads=pads)
        z = self.raw("Mul", self.raw("Cast", y, to=TensorProto.FLOAT), scale)
        height, width = (
            n + pads[k] + pads[k + 2] - 1 for k, n in enumerate(x.shape[2:])
        )
        self.keep(z, FLOAT, (x.shape[0], 3, height, width))

    def columns(self) -> None:
        x = self.pick(FLOAT, fits=lambda s: len(s) == 3 and s[1] % 2 == 0)
        if x is None or self.opset < 18:
            return
        # Windows of 1 x 2 in an image of one row more columns than windows.
        sizes = self.constant([1, x.shape[2] + 1])
        y = self.raw("Col2Im", x, sizes, self.constant([1, 2]))
        self.keep(y, FLOAT, (x.shape[0], x.shape[1] // 2, 1, x.shape[2] + 1))

    def unpooled(self) -> None:
        x = self.pick(FLOAT, exact=True, fits=lambda s: len(s) == 4 and min(s[2:]) > 1)
        if x is None or self.opset < 11:
            return
        attrs = {"kernel_shape": [2, 2], "strides": [2, 2]}
        values, places = self.raw("MaxPool", x, outputs=2, **attrs)
        y = self.raw("MaxUnpool", values, places, **attrs)
        shape = (*x.shape[:2], *(n // 2 * 2 for n in x.shape[2:]))
        if all(n % 2 == 0 for n in x.shape[2:]):
            self.keep(y, FLOAT, shape, is_exact=True)
        else:
            self.net.nodes.pop()
            shape = (*x.shape[:2], *(n // 2 for n in x.shape[2:]))
            self.keep(values, FLOAT, shape, is_exact=True)

    def boxes(self) -> None:
        x = self.image()
        if x is None or not 16 <= self.opset < 22:  # no kernel of ONNX Runtime
            return
        corners = np.sort(self.rng.uniform(0, max(x.shape[2:]), (3, 2, 2)), axis=1)
        rois = self.constant(corners.reshape(3, 4), FLOAT)
        indices = self.constant(self.rng.integers(0, x.shape[0], 3))
        attrs = {"output_height": 2, "output_width": 3, "sampling_ratio": 2}
        attrs["mode"] = self.choice(["avg", "max"])
        form = self.choice(["half_pixel", "output_half_pixel"])
        y = self.raw(
            "RoiAlign", x, rois, indices, coordinate_transformation_mode=form, **attrs
        )
        self.keep(y, FLOAT, (3, x.shape[1], 2, 3))

    def deformed(self) -> None:
        x = self.image()
        if x is None or self.opset < 19:
            return
        w = self.floats(2, x.shape[1], 2, 2, scale=0.4)
        extents = [n - 1 for n in x.shape[2:]]
        shape = (x.shape[0], 8, *extents)
        offsets = self.constant(self.rng.uniform(-1.5, 1.5, shape), FLOAT)
        y = self.raw("DeformConv", x, w, offsets, kernel_shape=[2, 2])
        self.keep(y, FLOAT, (x.shape[0], 2, *extents))

    # ---- matrices and transforms -----------------------------------------------------

    def spectrum(self) -> None:
        x = self.pick(FLOAT, fits=lambda s: len(s) == 2 and s[1] >= 4)
        if x is None or self.opset < 17:
            return
        rows, length = x.shape
        if self.chance(0.5):
            column = self.raw("Unsqueeze", x, self.constant([2]))
            half = int(self.chance(0.5))
            if self.opset < 20:
                y = self.raw("DFT", column, axis=1, onesided=half)
            else:
                operands = column, "", self.constant(1)
                y = self.raw("DFT", *operands, onesided=half)
            count = length // 2 + 1 if half else length
            self.keep(y, FLOAT, (rows, count, 2))
            return
        window = self.constant(self.rng.uniform(0.2, 1, 4), FLOAT)
        operands = x, self.constant(2), window
        y = self.raw("STFT", *operands, onesided=1)
        self.keep(y, FLOAT, (rows, (length - 4) // 2 + 1, 3, 2))

    def determinant(self) -> None:
        x = self.pick(FLOAT, fits=lambda s: len(s) >= 2 and s[-1] == s[-2] <= 4)
        if x is not None and self.opset >= 11:
            self.keep(self.raw("Det", x), FLOAT, x.shape[:-2])

    def rotation(self) -> None:
        x = self.pick(FLOAT, fits=lambda s: len(s) == 4 and s[3] % 2 == 0)
        if x is None or self.opset < 23:
            return
        shape = (x.shape[0], x.shape[2], x.shape[3] // 2)
        angles = self.rng.uniform(-3, 3, shape)
        tables = [self.constant(f(angles), FLOAT) for f in (np.cos, np.sin)]
        y = self.raw("RotaryEmbedding", x, *tables, interleaved=int(self.chance(0.5)))
        self.keep(y, FLOAT, x.shape)

    def attention(self) -> None:
        x = self.pick(FLOAT, fits=lambda s: len(s) == 4)
        if x is None or self.opset < 23:
            return
        keys = self.floats(*x.shape[:2], 3, x.shape[3])
        values = self.floats(*x.shape[:2], 3, 2)
        y = self.raw("Attention", x, keys, values, is_causal=int(self.chance(0.3)))
        self.keep(y, FLOAT, (*x.shape[:3], 2))

    # ---- indices ---------------------------------------------------------------------

    def older_scatter(self) -> None:
        x = self.pick(FLOAT)
        if x is None:
            return
        if self.opset >= 24 and len(x.shape) == 4:
            update = self.floats(*x.shape[:2], 1, x.shape[3])
            first = self.constant(self.rng.integers(0, x.shape[2], x.shape[0]))
            y = self.raw("TensorScatter", x, update, first)
            self.keep(y, FLOAT, x.shape, is_exact=x.is_exact)
        elif 9 <= self.opset < 11:
            places = self.constant(self.rng.integers(0, x.shape[0], (1, *x.shape[1:])))
            update = self.floats(1, *x.shape[1:])
            y = self.raw("Scatter", x, places, update)
            self.keep(y, FLOAT, x.shape, is_exact=x.is_exact)

    def ngrams(self) -> None:
        x = self.pick(INT64, INT32, fits=lambda s: len(s) <= 2)
        if x is None or self.opset < 9:
            return
        attrs: dict[str, Any] = {
            "mode": self.choice(["TF", "IDF", "TFIDF"]),
            "min_gram_length": 1,
            "max_gram_length": 2,
            "max_skip_count": self.choice([0, 1]),
            "ngram_counts": [0, 3],
            "ngram_indexes": [0, 1, 2, 3, 4],
            "pool_int64s": [1, 2, 3, 1, 2, 0, 1],
            "weights": [0.5, 1.0, 1.5, 2.0, 2.5],
        }
        y = self.raw("TfIdfVectorizer", x, **attrs)
        self.keep(y, FLOAT, (*x.shape[:-1], 5))

    # ---- lengths that depend on the data ---------------------------------------------

    def counted(self) -> None:
        """Add results whose number depends on the data; none of them is read again."""
        x = self.pick(FLOAT, INT64, exact=True, fits=lambda s: np.prod(s) <= 60)
        if x is None or self.opset < 11:
            return
        makers: list[Callable[[Item], str]] = [
            self._nonzero,
            self._compressed,
            self._unique,
            self._suppressed,
        ]
        self.finals.append(self.choice(makers)(x))

    def _nonzero(self, x: Item) -> str:
        places = self.raw("NonZero", self.raw("Greater", x, self.constant(0, x.dtype)))
        if self.chance(0.5):
            return str(places)
        rows = self.raw("Transpose", places, perm=[1, 0])
        if self.opset < 12 or self.chance(0.3):
            return str(rows)
        return str(self.raw("GatherND", x, rows))

    def _compressed(self, x: Item) -> str:
        axis = int(self.rng.integers(len(x.shape)))
        known = self.rng.random(x.shape[axis]) < 0.5
        known[0] = True  # a constant result without elements is refused
        mask = self.net.weight(known)
        if self.chance(0.5):
            flat = self.raw("Reshape", x, self.constant([-1]))
            mask = self.raw("Greater", flat, self.constant(0, x.dtype))
            part = self.raw("Compress", flat, mask)
        else:
            part = self.raw("Compress", x, mask, axis=axis)
        return str(self.raw(self.choice(["Abs", "Neg", "Identity"]), part))

    def _unique(self, x: Item) -> str:
        attrs: dict[str, Any] = {"sorted": int(self.chance(0.6))}
        if self.chance(0.5):
            attrs["axis"] = int(self.rng.integers(len(x.shape)))
        values, *others = self.raw("Unique", x, outputs=4, **attrs)
        self.finals.extend(others)
        return str(values)

    def _suppressed(self, x: Item) -> str:
        count = int(self.rng.integers(2, 7))
        corners = self.rng.integers(0, 9, (1, count, 4)) / 4
        boxes = self.constant(corners, FLOAT)
        flat = self.raw("Cast", self.raw("Reshape", x, self.constant([-1])), to=1)
        places = self.constant(self.rng.integers(0, np.prod(x.shape), (1, 1, count)))
        scores = self.raw("Gather", flat, places)
        most = self.constant([int(self.rng.integers(1, 4))])
        limits = [self.constant(value, FLOAT) for value in (0.5, 0.1)]
        return str(self.raw("NonMaxSuppression", boxes, scores, most, *limits))

    # ---- other domains ---------------------------------------------------------------

    def microsoft(self) -> None:
        x = self.pick(FLOAT, exact=True, fits=lambda s: len(s) in (2, 3, 4))
        if x is None:
            return
        attrs: dict[str, Any] = {"domain": MICROSOFT}
        size, last = self.choice([2, 4]), x.shape[-1]
        match self.choice(["fused", "turned", "dynamic", "scaled", "heads", "norm"]):
            case "fused" if len(x.shape) == 2:
                w = self.floats(size, last, scale=0.5)
                y = self.raw("FusedMatMul", x, w, transB=1, alpha=0.5, **attrs)
                self.keep(y, FLOAT, (x.shape[0], size))
            case "turned" if len(x.shape) == 2:
                w = self.floats(x.shape[0], size, scale=0.5)
                y = self.raw("TransposeMatMul", x, w, transA=1, **attrs)
                self.keep(y, FLOAT, (last, size))
            case "dynamic" if len(x.shape) == 2:
                w = self.net.weight(self.rng.integers(-99, 99, (last, size), np.int8))
                scale = self.constant(0.02, FLOAT)
                y = self.raw("DynamicQuantizeMatMul", x, w, scale, **attrs)
                self.keep(y, FLOAT, (x.shape[0], size))
            case "scaled":
                scale = self.constant(0.05, FLOAT)
                kind = self.choice([np.uint8, np.int8, np.uint16, np.int16])
                zero = self.net.weight(np.array(3, kind))
                q = self.raw("QuantizeLinear", x, scale, zero, **attrs)
                y = self.raw("DequantizeLinear", q, scale, zero, **attrs)
                self.keep(y, FLOAT, x.shape)
            case "norm" if self.opset >= 13:
                scale = self.floats(last)
                y = self.raw("SimplifiedLayerNormalization", x, scale, axis=-1)
                self.keep(y, FLOAT, x.shape)
            case "heads":
                shape = (1, int(np.prod(x.shape)) // last, last)
                rows = self.raw("Reshape", x, self.constant(shape))
                self._heads(Item(rows, FLOAT, shape, x.is_exact))

    def _heads(self, x: Item) -> None:
        """Add an attention of two heads over an input of three axes."""
        attrs: dict[str, Any] = {"domain": MICROSOFT, "num_heads": 2}
        shape = (*x.shape[:2], 4)
        if self.chance(0.5):
            w, bias = self.floats(x.shape[2], 12, scale=0.5), self.floats(12)
            self.keep(self.raw("Attention", x, w, bias, **attrs), FLOAT, shape)
            return
        query = self.raw("MatMul", x, self.floats(x.shape[2], 4, scale=0.5))
        if self.chance(0.5):
            angles = self.rng.uniform(-3, 3, (shape[1], 2))
            tables = [self.constant(f(angles), FLOAT) for f in (np.cos, np.sin)]
            wide = self.raw("Concat", query, query, axis=2)
            places = self.constant(np.tile(np.arange(shape[1]), (shape[0], 1)))
            y = self.raw("RotaryEmbedding", wide, places, *tables, **attrs)
            self.keep(y, FLOAT, (*shape[:2], 8))
            return
        pair = [self.floats(shape[0], 3, 4) for _ in "kv"]
        y = self.raw("MultiHeadAttention", query, *pair, **attrs)
        self.keep(y, FLOAT, shape)

    def learned(self) -> None:
        x = self.pick(FLOAT, INT64, exact=True, fits=lambda s: len(s) <= 2)
        if x is None:
            return
        attrs: dict[str, Any] = {"domain": LEARNED}
        if x.dtype == INT64:
            if self.chance(0.5):
                y = self.raw(
                    "OneHotEncoder", x, cats_int64s=[0, 1, 3], zeros=1, **attrs
                )
                self.keep(y, FLOAT, (*x.shape, 3), is_exact=True)
                return
            attrs |= {"keys_int64s": [0, 1, 3], "values_floats": [0.5, 1.5, 7.0]}
            y = self.raw("LabelEncoder", x, default_float=-2.0, **attrs)
            self.keep(y, FLOAT, x.shape, is_exact=True)
        elif len(x.shape) == 2:
            rows, columns = x.shape
            attrs["inputdimensions"] = [columns, columns]
            y = self.raw("FeatureVectorizer", x, x, **attrs)
            self.keep(y, FLOAT, (rows, 2 * columns), is_exact=True)
