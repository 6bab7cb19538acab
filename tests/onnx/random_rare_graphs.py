"""Random ONNX graphs with operators that few networks have, besides all others."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.onnx.random_float_graphs import BOOL, FLOAT, INT32, INT64, Item
from tests.onnx.random_layer_graphs import LayerGraph


def random_rare_model(seed: int) -> bytes:
    """Return the model of the seed, which also determines its opset."""
    return RareGraph(seed).data()


def _is_image(shape: tuple[int, ...]) -> bool:
    return len(shape) == 4 and min(shape[2:]) >= 2


class RareGraph(LayerGraph):
    """A graph in which many layers are rare ones."""

    LAYERS = (
        *LayerGraph.LAYERS,
        *(
            "positive",
            "power",
            "prelu",
            "running_sum",
            "gather_points",
            "scatter_points",
        ),
        *("triangle", "sequences", "hardmax", "sized_resize", "grid", "group_norm"),
        *("indices", "integers", "bits", "remainder", "whole_extreme", "log_sum"),
        *("layer_norm", "variance", "contraction", "crop", "whole_top", "nan", "loss"),
        *("dynamic_scale", "integer_product", "long_conv", "window", "root_norm"),
    )

    def add_above_zero(self, x: Item) -> bool:
        """Add |x| + 0.25; return whether the graph takes it."""
        before = len(self.items)
        self.add("Abs", [x])
        if len(self.items) == before:
            return False
        self.add("Add", [self.items[-1], self.constant(0.25, FLOAT)])
        return True

    def positive(self) -> None:
        x = self.pick(FLOAT, exact=True)
        if x is None:
            return
        if self.add_above_zero(x):
            op = self.choice(["Sqrt", "Log", "Reciprocal"])
            self.add(op, [self.items[-1]], is_exact=False)

    def power(self) -> None:
        x = self.pick(FLOAT, exact=True)
        if x is not None:
            exponent = self.constant(self.choice([1.0, 2.0, 3.0]), FLOAT)
            self.add("Pow", [x, exponent], is_exact=False)

    def prelu(self) -> None:
        x = self.pick(FLOAT)
        if x is not None:
            slopes = (
                self.floats(x.shape[1], *[1] * (len(x.shape) - 2))
                if len(x.shape) > 1
                else self.floats(1)
            )
            self.add("PRelu", [x, slopes])

    def running_sum(self) -> None:
        x = self.pick(FLOAT, INT64, INT32)
        if x is not None and self.opset >= 11:
            axis = self.constant(int(self.rng.integers(len(x.shape))))
            attrs = {key: int(self.chance(0.5)) for key in ("exclusive", "reverse")}
            self.add("CumSum", [x, axis], is_exact=False, **attrs)

    def gather_points(self) -> None:
        x = self.pick(FLOAT, INT64, BOOL)
        if x is None or self.opset < 11:
            return
        depth = int(self.rng.integers(1, len(x.shape) + 1))
        rows = [[int(self.rng.integers(n)) for n in x.shape[:depth]] for _ in "abc"]
        self.add("GatherND", [x, self.constant(rows)])

    def scatter_points(self) -> None:
        x = self.pick(FLOAT)
        if x is None or self.opset < 11:
            return
        depth = int(self.rng.integers(1, len(x.shape) + 1))
        row = [[int(self.rng.integers(n)) for n in x.shape[:depth]]]
        updates = self.floats(1, *x.shape[depth:])
        attrs = {"reduction": "add"} if self.opset >= 16 and self.chance(0.5) else {}
        exact = not attrs
        self.add("ScatterND", [x, self.constant(row), updates], is_exact=exact, **attrs)

    def triangle(self) -> None:
        x = self.pick(FLOAT, INT64, fits=lambda s: len(s) > 1)
        if x is not None and self.opset >= 14:
            k = self.constant(int(self.rng.integers(-1, 2)))
            self.add("Trilu", [x, k], upper=int(self.chance(0.5)))

    def sequences(self) -> None:
        x = self.pick(FLOAT, fits=lambda s: len(s) > 1)
        if x is not None and self.opset >= 10:
            batch = int(self.rng.integers(2))
            lengths = self.rng.integers(1, x.shape[1 - batch] + 1, x.shape[batch])
            attrs = {"batch_axis": batch, "time_axis": 1 - batch}
            self.add("ReverseSequence", [x, self.constant(lengths)], **attrs)

    def hardmax(self) -> None:
        x = self.pick(FLOAT, exact=True)
        if x is not None:
            axis = int(self.rng.integers(len(x.shape)))
            self.add("Hardmax", [x], axis=axis)

    def sized_resize(self) -> None:
        x = self.pick(FLOAT, fits=_is_image)
        if x is None or self.opset < 13:
            return
        sizes = self.constant([*x.shape[:2], *self.ints(1, 9, 2)])
        attrs: dict[str, Any] = {"mode": self.choice(["linear", "cubic", "nearest"])}
        forms = ["half_pixel", "align_corners", "asymmetric"]
        attrs["coordinate_transformation_mode"] = self.choice(forms)
        is_exact = attrs["mode"] == "nearest"
        self.add("Resize", [x, "", "", sizes], is_exact=is_exact, **attrs)

    def grid(self) -> None:
        x = self.pick(FLOAT, fits=_is_image)
        if x is None or self.opset < 20:
            return
        places = self.rng.uniform(-1.2, 1.2, (x.shape[0], 3, 2, 2))
        attrs = {"padding_mode": self.choice(["zeros", "border", "reflection"])}
        attrs["mode"] = self.choice(["linear", "cubic"])
        grid = self.constant(places, FLOAT)
        self.add("GridSample", [x, grid], is_exact=False, **attrs)

    def group_norm(self) -> None:
        x = self.pick(FLOAT, fits=lambda s: _is_image(s) and s[1] % 2 == 0)
        if x is not None and self.opset >= 21:
            pair = [self.floats(x.shape[1]), self.floats(x.shape[1])]
            attrs = {"num_groups": 2, "epsilon": 0.1}
            self.add("GroupNormalization", [x, *pair], is_exact=False, **attrs)

    def root_norm(self) -> None:
        x = self.pick(FLOAT)
        if x is not None and self.opset >= 23:
            scale = self.floats(x.shape[-1])
            self.add("RMSNormalization", [x, scale], is_exact=False, epsilon=0.1)

    def layer_norm(self) -> None:
        x = self.pick(FLOAT, fits=lambda s: len(s) > 1)
        if x is not None and self.opset >= 17:
            shape = x.shape[1:]
            attrs = {"axis": 1, "epsilon": 0.1}
            pair = [self.floats(*shape), self.floats(*shape)]
            self.add("LayerNormalization", [x, *pair], is_exact=False, **attrs)

    def variance(self) -> None:
        x = self.pick(FLOAT, exact=True, fits=lambda s: len(s) == 4 and np.prod(s) > 9)
        if x is not None and self.opset >= 9:
            axes = [0, 1, 2, 3]
            self.add("MeanVarianceNormalization", [x], is_exact=False, axes=axes)

    def indices(self) -> None:
        """Add a MaxPool with the places of its maxima."""
        x = self.pick(FLOAT, exact=True, fits=_is_image)
        if x is None or self.opset < 8:
            return
        attrs: dict[str, Any] = {"kernel_shape": [2, 2], "strides": self.ints(1, 3, 2)}
        before = len(self.items)
        self.add("MaxPool", [x], outputs=2, **attrs)
        if len(self.items) > before:
            last = self.items.pop()
            self.items.append(type(last)(last.name, INT64, last.shape))

    def integers(self) -> None:
        x = self.pick(INT64, INT32)
        if x is None:
            return
        op = self.choice(["Abs", "Neg", "Sign"])
        if op != "Sign" or self.opset >= 9:
            self.add(op, [x])

    def bits(self) -> None:
        x = self.pick(INT64, INT32)
        if x is not None and self.opset >= 18:
            op = self.choice(["BitwiseAnd", "BitwiseOr", "BitwiseXor"])
            self.add(op, [x, self.operand(x)])

    def remainder(self) -> None:
        x = self.pick(FLOAT, INT64, INT32, exact=True)
        if x is None or self.opset < 10:
            return
        b = self.constant(self.rng.integers(1, 5, x.shape[-1:]), x.dtype)
        self.add("Mod", [x, b], is_exact=False, fmod=1)

    def whole_extreme(self) -> None:
        x = self.pick(INT64, INT32)
        if x is None or self.opset < 12:
            return
        op = self.choice(["Max", "Min", "Clip", "ReduceMax", "ReduceMin"])
        if op == "Clip":
            ends = [self.constant(-3, x.dtype), self.constant(9, x.dtype)]
            self.add(op, [x, *ends])
        elif op.startswith("Reduce"):
            axes = self.constant([0])
            if self.opset >= 18:
                self.add(op, [x, axes], keepdims=1)
            else:
                self.add(op, [x], axes=[0], keepdims=1)
        else:
            self.add(op, [x, self.operand(x)])

    def log_sum(self) -> None:
        x = self.pick(FLOAT, exact=True)
        if x is None:
            return
        if self.add_above_zero(x):
            attrs: dict[str, Any] = {} if self.opset >= 18 else {"axes": [0]}
            more = [self.constant([0])] if self.opset >= 18 else []
            self.add("ReduceLogSum", [self.items[-1], *more], is_exact=False, **attrs)

    def contraction(self) -> None:
        x = self.pick(FLOAT, fits=lambda s: len(s) == 2)
        if x is None or self.opset < 12:
            return
        form = self.choice(["ij->ji", "ij->i", "ij,ij->i", "ij,kj->ik", "ij->"])
        operands = [x]
        if "," in form:
            operands.append(x)
        self.add("Einsum", operands, is_exact=False, equation=form)

    def crop(self) -> None:
        x = self.pick(FLOAT, fits=lambda s: len(s) > 1)
        if x is not None and self.opset >= 18:
            sizes = self.constant(self.ints(1, 6, 2))
            self.add("CenterCropPad", [x, sizes], axes=[0, 1])

    def whole_top(self) -> None:
        x = self.pick(INT64)
        if x is not None and self.opset >= 11:
            axis = int(self.rng.integers(len(x.shape)))
            self.add("TopK", [x, self.constant([1])], outputs=2, axis=axis)

    def nan(self) -> None:
        x = self.pick(FLOAT, exact=True)
        if x is not None and self.opset >= 13:
            self.add(self.choice(["IsNaN", "IsInf"]), [x], BOOL)

    def loss(self) -> None:
        x = self.pick(FLOAT, fits=lambda s: len(s) == 2)
        if x is not None and self.opset >= 13:
            labels = self.constant(self.rng.integers(0, x.shape[1], x.shape[0]))
            form = self.choice(["mean", "sum", "none"])
            op = "SoftmaxCrossEntropyLoss"
            self.add(op, [x, labels], is_exact=False, reduction=form)

    def dynamic_scale(self) -> None:
        """Quantize at run time, and back."""
        x = self.pick(FLOAT, exact=True)
        if x is None or self.opset < 11:
            return
        q, scale, point = self.net.node("DynamicQuantizeLinear", x.name, outputs=3)
        y = self.net.node("DequantizeLinear", q, scale, point)
        self.used.add(x.name)
        self.items.append(type(x)(y, FLOAT, x.shape, False))

    def integer_product(self) -> None:
        x = self.pick(FLOAT, exact=True, fits=lambda s: len(s) == 2)
        if x is None or self.opset < 11:
            return
        w = self.net.weight(self.rng.integers(-127, 128, (x.shape[1], 3), np.int8))
        q, scale, point = self.net.node("DynamicQuantizeLinear", x.name, outputs=3)
        y = self.net.node("MatMulInteger", q, w, point)
        z = self.net.node("Cast", y, to=1)
        result = self.net.node("Mul", z, scale)
        self.used.add(x.name)
        self.items.append(type(x)(result, FLOAT, (x.shape[0], 3), False))

    def long_conv(self) -> None:
        """Add a convolution over time with padding on one side."""
        x = self.pick(FLOAT, fits=lambda s: len(s) == 3 and s[2] > 2)
        if x is not None:
            w = self.floats(4, x.shape[1], 3, scale=0.4)
            attrs = {"pads": [2, 0], "dilations": [1], "kernel_shape": [3]}
            self.add("Conv", [x, w], is_exact=False, **attrs)

    def window(self) -> None:
        """Add a pool over time, or with dilation."""
        x = self.pick(FLOAT, fits=lambda s: len(s) in (3, 4) and min(s[2:]) > 2)
        if x is None or self.opset < 10:
            return
        attrs: dict[str, Any] = {"kernel_shape": [2] * (len(x.shape) - 2)}
        if self.chance(0.5):
            attrs["dilations"] = [2] * (len(x.shape) - 2)
            self.add("MaxPool", [x], **attrs)
            return
        self.add("AveragePool", [x], is_exact=False, **attrs)
