"""Random quantized networks of operators that Vela compiles for an Ethos-U.

A seed determines the network; `kinds` may restrict its operators.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.extensions.ethos_u.npu_values import SAME, VALID, NetworkWriter, Value

KINDS = (
    "conv",
    "conv",
    "depthwise",
    "dense",
    "pool",
    "binary",
    "binary",
    "minmax",
    "join",
    "split",
    "resize",
    "softmax",
    "leaky",
    "relu",
    "logistic",
    "tanh",
    "pad",
    "transpose_conv",
    "mean",
    "slice",
    "reshape",
    "quantize",
    "constant_binary",
    "transpose",
    "absolute",
)


def random_npu_network(
    seed: int, kinds: Sequence[str] = KINDS, dtype: str = ""
) -> bytes:
    return _Network(seed, kinds, dtype).data()


class _Network(NetworkWriter):
    def __init__(self, seed: int, kinds: Sequence[str], dtype: str) -> None:
        super().__init__(seed, dtype)
        self.kinds = kinds

    def data(self) -> bytes:
        size = (self.rng.randint(1, 14), self.rng.randint(1, 14))
        shape = (1, *size, self.rng.choice([1, 3, 8, 15, 16, 17, 32, 50]))
        first = self.tensor("x", shape, *self.quantization())
        self.graph.table.inputs.append(first.index)
        for step in range(self.rng.randint(1, 7)):
            getattr(self, self.rng.choice(self.kinds))(f"t{step}")
        if len(self.values) == 1:
            self.relu("end")
        loose = [v.index for v in self.values[1:] if v.index not in self.used]
        self.graph.outputs(*loose)
        return self.file.data()

    # ---- layers with weights ---------------------------------------------------------

    def conv(self, name: str) -> None:
        x, count = self.pick(), self.rng.choice([1, 5, 8, 16, 19, 33, 72])
        kernel, stride, dilation, padding = self.window(x)
        shape = (1, *self.map_shape(x, kernel, stride, dilation, padding), count)
        both = self.weights(name, (count, *kernel, x.shape[3]), count, 0, x)
        self.emit(
            name,
            "CONV_2D",
            [x, *both],
            shape,
            "Conv2DOptions",
            padding=padding,
            strideH=stride[0],
            strideW=stride[1],
            dilationHFactor=dilation[0],
            dilationWFactor=dilation[1],
            fusedActivationFunction=self.activation(),
        )

    def depthwise(self, name: str) -> None:
        x = self.pick()
        kernel, stride, dilation, padding = self.window(x)
        stride = (stride[0], stride[0])
        shape = (1, *self.map_shape(x, kernel, stride, dilation, padding), x.shape[3])
        both = self.weights(name, (1, *kernel, x.shape[3]), x.shape[3], 3, x)
        self.emit(
            name,
            "DEPTHWISE_CONV_2D",
            [x, *both],
            shape,
            "DepthwiseConv2DOptions",
            padding=padding,
            strideH=stride[0],
            strideW=stride[1],
            depthMultiplier=1,
            dilationHFactor=dilation[0],
            dilationWFactor=dilation[1],
            fusedActivationFunction=self.activation(),
        )

    def transpose_conv(self, name: str) -> None:
        x, count = self.pick(), self.rng.choice([1, 4, 16, 20])
        if (
            self.dtype == "uint8"
            or x.shape[1] * x.shape[2] > 100
            or x.index in self.moved
        ):
            return  # Vela 5.2 omits the padding before a slice
        kernel, stride, padding = (
            self.rng.choice([2, 3, 4]),
            2,
            self.rng.choice([SAME, VALID]),
        )
        sizes = [
            n * stride if padding == SAME else (n - 1) * stride + kernel
            for n in x.shape[1:3]
        ]
        shape = (1, *sizes, count)
        both = self.weights(name, (count, kernel, kernel, x.shape[3]), count, 0, x)
        self.emit(
            name,
            "TRANSPOSE_CONV",
            [self.ints(name, shape), both[0], x, both[1]],
            shape,
            "TransposeConvOptions",
            padding=padding,
            strideH=2,
            strideW=2,
        )

    def dense(self, name: str) -> None:
        x, count = self.pick(), self.rng.choice([1, 7, 10, 64])
        elements = int(np.prod(x.shape))
        if elements > 6000:
            return
        flat = self.emit(
            f"{name}/r",
            "RESHAPE",
            [x, self.ints(name, (1, elements))],
            (1, elements),
            same=True,
        )
        both = self.weights(name, (count, elements), count, -1, x)
        made = self.emit(
            name,
            "FULLY_CONNECTED",
            [flat, *both],
            (1, count),
            "FullyConnectedOptions",
            fusedActivationFunction=self.activation(),
        )
        shape = (1, 1, 1, count)
        self.emit(
            f"{name}/m",
            "RESHAPE",
            [made, self.ints(f"{name}/m", shape)],
            shape,
            same=True,
        )

    # ---- pooling ---------------------------------------------------------------------

    def pool(self, name: str) -> None:
        x = self.pick()
        kernel, stride, _, padding = self.window(x)
        if padding == SAME:
            kernel = (min(kernel[0], 8), min(kernel[1], 8))
        shape = (1, *self.map_shape(x, kernel, stride, (1, 1), padding), x.shape[3])
        op = self.rng.choice(["MAX_POOL_2D", "AVERAGE_POOL_2D"])
        self.emit(
            name,
            op,
            [x],
            shape,
            "Pool2DOptions",
            same=True,
            padding=padding,
            strideH=stride[0],
            strideW=stride[1],
            filterHeight=kernel[0],
            filterWidth=kernel[1],
            fusedActivationFunction=self.activation(),
        )

    def mean(self, name: str) -> None:
        x = self.pick()
        self.emit(
            name,
            "MEAN",
            [x, self.ints(name, [1, 2])],
            (1, 1, 1, x.shape[3]),
            "ReducerOptions",
            keepDims=True,
        )

    # ---- elementwise -----------------------------------------------------------------

    def binary(self, name: str) -> None:
        a = self.pick()
        b = self.rng.choice([v for v in self.values if v.shape == a.shape])
        self.arithmetic(name, a, b)

    def constant_binary(self, name: str) -> None:
        """One operand is constant: a scalar, a row of channels or a plane."""
        a, (scale, zero_point) = self.pick(), self.quantization()
        shape = self.rng.choice(
            [(), (a.shape[3],), (1, *a.shape[1:3], 1), (1, 1, a.shape[2], 1)]
        )
        info = np.iinfo(self.dtype)
        data = self.numbers.integers(info.min, info.max + 1, shape).astype(self.dtype)
        index = self.graph.constant(f"{name}/k", np.array(data), scale, zero_point)
        b = Value(index, shape, scale, zero_point)
        self.arithmetic(name, *((b, a) if self.rng.random() < 0.3 else (a, b)))

    def arithmetic(self, name: str, a: Value, b: Value) -> None:
        op = self.rng.choice(["ADD", "SUB", "MUL"])
        table = {"ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions"}[op]
        options = {} if op == "MUL" else {"potScaleInt16": False}
        shape = max(a.shape, b.shape, key=len)
        shape = (
            a.shape
            if len(a.shape) == 4 and np.prod(a.shape) >= np.prod(b.shape)
            else b.shape
        )
        self.emit(
            name,
            op,
            [a, b],
            shape,
            table,
            fusedActivationFunction=self.activation(),
            **options,
        )

    def minmax(self, name: str) -> None:
        a = self.pick()
        alike = self.like(a)
        op = self.rng.choice(["MINIMUM", "MAXIMUM"])
        self.emit(
            name,
            op,
            [a, self.rng.choice(alike)],
            a.shape,
            "MaximumMinimumOptions",
            same=True,
        )

    def absolute(self, name: str) -> None:
        x = self.pick()
        if self.dtype == "uint8":
            return
        self.emit(name, "ABS", [x], x.shape, "AbsOptions")

    def leaky(self, name: str) -> None:
        x = self.pick()
        self.emit(
            name,
            "LEAKY_RELU",
            [x],
            x.shape,
            "LeakyReluOptions",
            alpha=self.rng.uniform(0, 1),
        )

    def relu(self, name: str) -> None:
        x = self.pick()
        ops = (
            ["RELU", "RELU6"]
            if self.dtype == "int16"
            else ["RELU", "RELU6", "RELU_N1_TO_1"]
        )
        self.emit(name, self.rng.choice(ops), [x], x.shape)

    def logistic(self, name: str) -> None:
        x = self.pick()
        self.emit(name, "LOGISTIC", [x], x.shape)

    def tanh(self, name: str) -> None:
        x = self.pick()
        self.emit(name, "TANH", [x], x.shape)

    def softmax(self, name: str) -> None:
        x = self.pick()
        self.emit(name, "SOFTMAX", [x], x.shape, "SoftmaxOptions", beta=1.0)

    def quantize(self, name: str) -> None:
        x = self.pick()
        self.emit(name, "QUANTIZE", [x], x.shape, "QuantizeOptions")

    # ---- data movement ---------------------------------------------------------------

    def join(self, name: str) -> None:
        a = self.pick()
        alike = self.like(a)
        parts, axis = (
            [a, *self.rng.choices(alike, k=self.rng.randint(1, 2))],
            self.rng.randint(1, 3),
        )
        shape = [n * len(parts) if k == axis else n for k, n in enumerate(a.shape)]
        if np.prod(shape) < 20000:
            self.emit(
                name,
                "CONCATENATION",
                parts,
                shape,
                "ConcatenationOptions",
                same=True,
                axis=axis,
            )

    def split(self, name: str) -> None:
        x = self.pick()
        axes = [axis for axis in (1, 2, 3) if x.shape[axis] % 2 == 0]
        if axes:
            axis = self.rng.choice(axes)
            shape = [n // 2 if k == axis else n for k, n in enumerate(x.shape)]
            parts = [
                self.tensor(f"{name}/{n}", shape, x.scale, x.zero_point)
                for n in range(2)
            ]
            self.used.add(x.index)
            self.moved.update(part.index for part in parts)
            self.graph.op(
                "SPLIT",
                [self.ints(name, axis), x.index],
                [p.index for p in parts],
                "SplitOptions",
                numSplits=2,
            )

    def slice(self, name: str) -> None:
        x = self.pick()
        begin = [self.rng.randrange(n) for n in x.shape]
        shape = [
            self.rng.randint(1, n - b) for n, b in zip(x.shape, begin, strict=True)
        ]
        first = self.graph.constant(f"{name}/from", np.array(begin, np.int32))
        self.emit(name, "SLICE", [x, first, self.ints(name, shape)], shape, same=True)

    def pad(self, name: str) -> None:
        x = self.pick()
        margins = [
            [0, 0],
            *[[self.rng.randint(0, 2), self.rng.randint(0, 2)] for _ in "hw"],
            [0, 0],
        ]
        shape = [n + sum(pair) for n, pair in zip(x.shape, margins, strict=True)]
        self.emit(name, "PAD", [x, self.ints(name, margins)], shape, same=True)

    def reshape(self, name: str) -> None:
        x = self.pick()
        shape = (1, x.shape[2], x.shape[1], x.shape[3])
        self.emit(name, "RESHAPE", [x, self.ints(name, shape)], shape, same=True)

    def transpose(self, name: str) -> None:
        x, order = self.pick(), [0, *self.rng.sample([1, 2, 3], 3)]
        if self.dtype == "uint8" or order == [0, 1, 2, 3]:
            return  # Vela 5.2 limits uint8 to 127, and omits an output that is a copy
        shape = [x.shape[axis] for axis in order]
        self.emit(name, "TRANSPOSE", [x, self.ints(name, order)], shape, same=True)

    def resize(self, name: str) -> None:
        x, factor = self.pick(), self.rng.choice([2, 2, 4])
        if max(x.shape[1:3]) > 8:
            return
        op = self.rng.choice(["RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"])
        align, half = self.rng.choice([(False, False), (True, False), (False, True)])
        size = [(n - 1) * factor + 1 if align else n * factor for n in x.shape[1:3]]
        if min(size) > 1:
            shape = (1, *size, x.shape[3])
            self.emit(
                name,
                op,
                [x, self.ints(name, size)],
                shape,
                "ResizeBilinearOptions"
                if op == "RESIZE_BILINEAR"
                else "ResizeNearestNeighborOptions",
                same=True,
                alignCorners=align,
                halfPixelCenters=half,
            )
