"""Random .tflite graphs with all operators: layers, movements, indices.

`random_operator_graph` determines the graph by a seed; its type is one of `KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.fuzz.random_tflite import KINDS, Made
from tests.fuzz.random_tflite_operators import (
    ANY,
    BYTES,
    NUMBERS,
    OperatorGraph,
)

MIRRORED, PADDED = (*BYTES, "float32", "int32"), (*NUMBERS, "bool")
MOVED = ("int8", "uint8", "int16", "float32", "int32", "int64")
BILINEAR = ("int8", "uint8", "int16", "float32")
SAME, VALID = 0, 1


def random_operator_graph(seed: int) -> bytes:
    return LayerGraph(seed, KINDS[seed % len(KINDS)]).data()


class LayerGraph(OperatorGraph):
    """A graph of all operators."""

    LAYERS = (
        *OperatorGraph.LAYERS,
        *("window", "window_by_channel", "transpose_conv", "batch_matmul"),
        *("resize", "arg", "cumulative", "top", "lookup", "one_hot"),
        *("move", "move", "move", "parts", "parts"),
    )

    # ---- layers with weights ---------------------------------------------------------

    def window(self, name: str) -> None:
        self._convolve(name, is_depthwise=False)

    def window_by_channel(self, name: str) -> None:
        self._convolve(name, is_depthwise=True)

    def _convolve(self, name: str, *, is_depthwise: bool) -> None:
        """Add a convolution of any stride, dilation, padding and activation."""
        x = self.pick(4)
        kernel = [self.rng.randint(1, min(3, n)) for n in x.shape[1:3]]
        stride, dilation = self.rng.choice([(1, 1), (2, 1), (3, 1), (1, 2)])
        padding = self.rng.choice([SAME, VALID])
        reach = [(k - 1) * dilation + 1 for k in kernel]
        if padding == VALID and any(
            r > n for r, n in zip(reach, x.shape[1:3], strict=True)
        ):
            return
        sizes = [
            -(-n // stride) if padding == SAME else (n - r) // stride + 1
            for n, r in zip(x.shape[1:3], reach, strict=True)
        ]
        multiplier = self.rng.choice([1, 1, 2, 3])
        count = x.shape[3] * multiplier if is_depthwise else self.rng.randint(1, 6)
        shape = (1, *kernel, count) if is_depthwise else (count, *kernel, x.shape[3])
        axis = self.rng.choice([3 if is_depthwise else 0, -1])
        if is_depthwise and self.kind == "hybrid":
            axis = 3
        w, bias = self.weights(name, shape, count, axis, x)
        operator = "DEPTHWISE_CONV_2D" if is_depthwise else "CONV_2D"
        options = {"depthMultiplier": multiplier} if is_depthwise else {}
        self.apply(
            name,
            operator,
            [x, w, bias],
            (x.shape[0], *sizes, count),
            quantization=self.quantization_of(x.dtype),
            is_exact=False,
            padding=padding,
            strideW=stride,
            strideH=stride,
            dilationWFactor=dilation,
            dilationHFactor=dilation,
            fusedActivationFunction=self.rng.choice([0, 1, 2, 3]),
            **options,
        )

    def transpose_conv(self, name: str) -> None:
        x = self.pick(4)
        if self.kind == "hybrid":
            return
        kernel, stride, count = self.rng.randint(1, 3), self.rng.choice([1, 2]), 2
        padding = self.rng.choice([SAME, VALID])
        sizes = [
            n * stride if padding == SAME else (n - 1) * stride + kernel
            for n in x.shape[1:3]
        ]
        shape = (x.shape[0], *sizes, count)
        w, bias = self.weights(name, (count, kernel, kernel, x.shape[3]), count, 0, x)
        operands = [self.ints(name, shape), w, x, bias]
        self.apply(
            name,
            "TRANSPOSE_CONV",
            operands if self.rng.random() < 0.5 else operands[:3],
            shape,
            quantization=self.quantization_of(x.dtype),
            is_exact=False,
            padding=padding,
            strideW=stride,
            strideH=stride,
        )

    def batch_matmul(self, name: str) -> None:
        a = self.any_of(("int8", "float32", "int16"))
        if a is None or len(a.shape) < 2:
            return
        transposed, count = self.rng.random() < 0.5, self.rng.randint(1, 5)
        sizes = (count, a.shape[-1]) if transposed else (a.shape[-1], count)
        alike = [m for m in self.made if m.dtype == a.dtype and m.shape[-2:] == sizes]
        alike = [m for m in alike if m.shape[:-2] == a.shape[:-2]]
        is_constant = not alike or self.rng.random() < 0.3
        b = self.constant(name, a, sizes) if is_constant else self.rng.choice(alike)
        self.apply(
            name,
            "BATCH_MATMUL",
            [a, b],
            (*a.shape[:-1], count),
            quantization=self.quantization_of(a.dtype),
            is_exact=False,
            adjX=False,
            adjY=transposed,
        )

    # ---- sizes, order and indices ----------------------------------------------------

    def resize(self, name: str) -> None:
        op = self.rng.choice(["RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"])
        bilinear = op == "RESIZE_BILINEAR"
        x = self.any_of(BILINEAR, rank=4)
        if x is None:
            return
        sizes = [self.rng.randint(1, 9), self.rng.randint(1, 9)]
        aligned, centered = self.rng.choice([(0, 0), (1, 0), (0, 1)])
        self.apply(
            name,
            op,
            [x, self.ints(name, sizes)],
            (x.shape[0], *sizes, x.shape[3]),
            is_exact=not bilinear,
            alignCorners=bool(aligned),
            halfPixelCenters=bool(centered),
        )

    def arg(self, name: str) -> None:
        x = self.any_of((*BYTES, "float32", "int32"), exact=True)
        if x is None:
            return
        axis, dtype = self.rng.randrange(len(x.shape)), self.rng.choice([2, 2, 4])
        self.apply(
            name,
            self.rng.choice(["ARG_MAX", "ARG_MIN"]),
            [x, self.ints(name, axis)],
            [n for k, n in enumerate(x.shape) if k != axis],
            dtype="int32" if dtype == 2 else "int64",
            limit=x.shape[axis],
            outputType=dtype,
        )

    def cumulative(self, name: str) -> None:
        x = self.any_of(("float32", "int32", "int64"))
        if x is None:
            return
        axis = self.ints(name, self.rng.randrange(len(x.shape)))
        flags = {key: self.rng.random() < 0.5 for key in ("exclusive", "reverse")}
        self.apply(name, "CUMSUM", [x, axis], x.shape, is_exact=False, **flags)

    def top(self, name: str) -> None:
        x = self.any_of((*BYTES, "int16", "float32", "int32"), exact=True)
        if x is None:
            return
        count = self.rng.randint(1, x.shape[-1])
        shape = (*x.shape[:-1], count)
        values = self.typed(name, x.dtype, shape, (x.scale, x.zero_point))
        places = self.typed(f"{name}/i", "int32", shape, (0.0, 0), limit=x.shape[-1])
        self.connect("TOPK_V2", [x, self.ints(name, count)], [values, places])

    def lookup(self, name: str) -> None:
        """Add a GATHER of computed indices."""
        found = [m for m in self.made if m.limit and m.dtype in ("int32", "int64")]
        x = self.any_of(ANY)
        if not found or x is None:
            return
        places = self.rng.choice(found)
        axes = [k for k, n in enumerate(x.shape) if n >= places.limit]
        if not axes:
            return
        axis = self.rng.choice(axes)
        shape = (*x.shape[:axis], *places.shape, *x.shape[axis + 1 :])
        if len(shape) <= 5:
            self.apply(name, "GATHER", [x, places], shape, axis=axis)

    def one_hot(self, name: str) -> None:
        found = [m for m in self.made if m.limit and len(m.shape) < 4]
        if not found:
            return
        x, depth = self.rng.choice(found), self.rng.randint(1, 5)
        dtype = self.rng.choice(["float32", "int32", "bool"])
        on, off = (
            self.graph.constant(f"{name}/{value}", np.array(value, dtype))
            for value in (1, 0)
        )
        operands = [x, self.ints(name, depth), on, off]
        shape = (*x.shape, depth)
        self.apply(
            name,
            "ONE_HOT",
            operands,
            shape,
            dtype=dtype,
            quantization=(0.0, 0),
            axis=-1,
        )

    # ---- movement --------------------------------------------------------------------

    def move(self, name: str) -> None:
        """Add an operator that moves values of any type."""
        moves: tuple[Callable[[str], None], ...] = (
            self._strided_slice,
            self._mirror_pad,
            self._pad_value,
            self._tile,
            self._gather,
            self._blocks,
            self._permute,
            self._spread,
        )
        self.rng.choice(moves)(name)

    def _strided_slice(self, name: str) -> None:
        x = self.any_of(ANY)
        if x is None or len(x.shape) > 4:
            return
        begin = [self.rng.randrange(n) for n in x.shape]
        strides = [self.rng.choice([1, 1, 2, -1]) for _ in x.shape]
        ends, shape, shrunk = [], [], 0
        for axis, (first, step, n) in enumerate(
            zip(begin, strides, x.shape, strict=True)
        ):
            if self.rng.random() < 0.15:
                shrunk |= 1 << axis
                strides[axis] = 1
                ends.append(first + 1)
                continue
            end = self.rng.randint(first + 1, n) if step > 0 else -n - 1
            ends.append(end)
            count = first + 1 if step < 0 else -(-(end - first) // step)
            shape.append(count)
        operands = [
            self.graph.constant(f"{name}/{k}", np.array(v, np.int32))
            for k, v in (("b", begin), ("e", ends), ("s", strides))
        ]
        options = dict.fromkeys(
            ("beginMask", "endMask", "ellipsisMask", "newAxisMask"), 0
        )
        self.apply(
            name,
            "STRIDED_SLICE",
            [x, *operands],
            shape,
            shrinkAxisMask=shrunk,
            **options,
        )

    def _mirror_pad(self, name: str) -> None:
        x = self.any_of(MIRRORED)
        if x is None or len(x.shape) > 4:
            return
        mode = self.rng.choice([0, 1])
        most = [n - 1 if mode == 0 else n for n in x.shape]
        margins = [[self.rng.randint(0, min(n, 2)) for _ in "be"] for n in most]
        shape = [n + sum(pair) for n, pair in zip(x.shape, margins, strict=True)]
        self.apply(name, "MIRROR_PAD", [x, self.ints(name, margins)], shape, mode=mode)

    def _pad_value(self, name: str) -> None:
        x = self.any_of(("int8", "uint8", "float32", "int32", "int64"))
        if x is None or len(x.shape) > 4:
            return
        margins = [[self.rng.randint(0, 2) for _ in "be"] for n in x.shape]
        shape = [n + sum(pair) for n, pair in zip(x.shape, margins, strict=True)]
        value = self.same_scale_constant(name, x, ())
        operands = [x, self.ints(name, margins)]
        if self.rng.random() < 0.5:
            self.apply(name, "PAD", operands, shape)
        else:
            self.apply(name, "PADV2", [*operands, value.index], shape)

    def _tile(self, name: str) -> None:
        x = self.any_of((*BYTES, "float32", "int32", "int64", "bool"))
        if x is None:
            return
        counts = [self.rng.choice([1, 1, 2]) for _ in x.shape]
        shape = [n * k for n, k in zip(x.shape, counts, strict=True)]
        self.apply(name, "TILE", [x, self.ints(name, counts)], shape)

    def _gather(self, name: str) -> None:
        x = self.any_of(ANY)
        if x is None:
            return
        axis = self.rng.randrange(len(x.shape))
        places = self.values.integers(0, x.shape[axis], self.rng.randint(1, 4))
        index = self.graph.constant(f"{name}/i", places.astype(np.int32))
        shape = (*x.shape[:axis], len(places), *x.shape[axis + 1 :])
        self.apply(name, "GATHER", [x, index], shape, axis=axis)

    def _blocks(self, name: str) -> None:
        """Add a rearrangement of blocks of 2 x 2, or of batches."""
        x = self.any_of((*BYTES, "float32", "int32", "int64"), rank=4)
        if x is None:
            return
        batch, height, width, channels = x.shape
        if channels % 4 == 0 and self.rng.random() < 0.5:
            shape = (batch, 2 * height, 2 * width, channels // 4)
            self.apply(name, "DEPTH_TO_SPACE", [x], shape, blockSize=2)
        elif height % 2 == 0 and width % 2 == 0:
            sizes, none = np.array([2, 2], np.int32), np.zeros((2, 2), np.int32)
            if self.rng.random() < 0.5:
                shape = (batch, height // 2, width // 2, 4 * channels)
                self.apply(name, "SPACE_TO_DEPTH", [x], shape, blockSize=2)
                return
            operands = [
                x,
                self.ints(name, sizes),
                self.graph.constant(f"{name}/p", none),
            ]
            shape = (4 * batch, height // 2, width // 2, channels)
            self.apply(name, "SPACE_TO_BATCH_ND", operands, shape)

    def _permute(self, name: str) -> None:
        x = self.any_of(MOVED)
        if x is None:
            return
        order = self.rng.sample(range(len(x.shape)), len(x.shape))
        if self.rng.random() < 0.5:
            shape = [x.shape[axis] for axis in order]
            self.apply(name, "TRANSPOSE", [x, self.ints(name, order)], shape)
            return
        self.apply(name, "REVERSE_V2", [x, self.ints(name, order[:1])], x.shape)

    def _spread(self, name: str) -> None:
        x = self.any_of((*BYTES, "float32", "int32", "bool"))
        if x is None or len(x.shape) > 4:
            return
        shape = [self.rng.randint(1, 3) if n == 1 else n for n in x.shape]
        if self.rng.random() < 0.4:
            axis = self.rng.randint(0, len(x.shape))
            sizes = [*x.shape[:axis], 1, *x.shape[axis:]]
            self.apply(name, "EXPAND_DIMS", [x, self.ints(name, axis)], sizes)
            return
        if self.rng.random() < 0.5:
            self._regroup(name, x)
            return
        self.apply(name, "BROADCAST_TO", [x, self.ints(name, shape)], shape)

    def _regroup(self, name: str, x: Made) -> None:
        """Remove axes of one element, or join neighboring axes."""
        ones = [axis for axis, n in enumerate(x.shape) if n == 1]
        if ones and len(x.shape) > 1 and self.rng.random() < 0.5:
            axis = self.rng.choice(ones)
            shape = [*x.shape[:axis], *x.shape[axis + 1 :]]
            self.apply(name, "SQUEEZE", [x], shape, squeezeDims=[axis])
            return
        axis = self.rng.randint(0, len(x.shape) - 1)
        rest = int(np.prod(x.shape[axis:]))
        shape = [*x.shape[:axis], rest]
        asked = [*x.shape[:axis], self.rng.choice([-1, rest])]
        self.apply(name, "RESHAPE", [x, self.ints(name, asked)], shape)

    def parts(self, name: str) -> None:
        """Add an operator of several results, or of several operands."""
        x = self.any_of(MOVED)
        if x is None or len(x.shape) > 4:
            return
        axis = self.rng.randrange(len(x.shape))
        length, kind = x.shape[axis], self.rng.randrange(4)
        rest = (*x.shape[:axis], *x.shape[axis + 1 :])
        if kind == 0:
            shape = (*x.shape[:axis], 2, *x.shape[axis:])
            if np.prod(shape) > 600 or len(shape) > 4:
                return
            others = [m for m in self.made if _is_alike(m, x)]
            pair = [x, self.rng.choice(others)]
            self.apply(name, "PACK", pair, shape, valuesCount=2, axis=axis)
        elif kind == 1 and length <= 4 and len(x.shape) > 1 and x.dtype != "int64":
            results = [self._part(f"{name}.{k}", x, rest) for k in range(length)]
            options = {"num": length, "axis": axis}
            self.connect("UNPACK", [x], results, "UnpackOptions", **options)
        elif kind == 2 and length % 2 == 0:
            half = (*x.shape[:axis], length // 2, *x.shape[axis + 1 :])
            results = [self._part(f"{name}.{k}", x, half) for k in range(2)]
            self.connect(
                "SPLIT",
                [self.ints(name, axis), x],
                results,
                "SplitOptions",
                numSplits=2,
            )
        elif length > 1:
            first = self.rng.randint(1, length - 1)
            sizes = [first, length - first]
            results = [
                self._part(
                    f"{name}.{n}{k}", x, (*x.shape[:axis], n, *x.shape[axis + 1 :])
                )
                for k, n in enumerate(sizes)
            ]
            operands = [
                x,
                self.ints(name, sizes),
                self.graph.constant(f"{name}/a", np.array(axis, np.int32)),
            ]
            self.connect("SPLIT_V", operands, results, "SplitVOptions", numSplits=2)

    def _part(self, name: str, x: Made, shape: tuple[int, ...]) -> Made:
        same = (x.scale, x.zero_point)
        return self.typed(name, x.dtype, shape, same, is_exact=x.is_exact)


def _is_alike(a: Made, b: Made) -> bool:
    return (a.dtype, a.shape, a.scale, a.zero_point) == (
        b.dtype,
        b.shape,
        b.scale,
        b.zero_point,
    )
