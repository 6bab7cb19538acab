"""Random .tflite graphs with operators that few networks have, besides all others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.fuzz.random_tflite import KINDS, Made
from tests.fuzz.random_tflite_layers import LayerGraph
from tests.fuzz.random_tflite_operators import BYTES, NUMBERS

POSITIVE_OPERATORS = {
    "SQRT": ("int8", "float32"),
    "RSQRT": ("float32",),
    "LOG": ("int8", "float32"),
}


def random_rare_graph(seed: int) -> bytes:
    return RareGraph(seed, KINDS[seed % len(KINDS)]).data()


class RareGraph(LayerGraph):
    """A graph in which every second layer is a rare one."""

    LAYERS = (
        *LayerGraph.LAYERS,
        *("positive", "quotient", "sum_of_many", "gather_points", "scatter_points"),
        *("reversed_sequences", "row_lookup", "rows", "rows", "window_norm", "bits"),
        *("batches_to_space", "slices", "power", "embedding", "fills", "fills"),
        *("angle", "known", "known", "volume", "stored_half", "detections"),
    )

    def positive(self, name: str) -> None:
        """Add a function of values that are not negative."""
        op = self.rng.choice(list(POSITIVE_OPERATORS))
        x = self.any_of(POSITIVE_OPERATORS[op], exact=True)
        if x is None:
            return
        if x.dtype == "float32":
            self.apply(f"{name}/a", "ABS", [x], x.shape)
            if self.made[-1].shape != x.shape:
                return
            one = self.graph.constant(f"{name}/1", np.array([0.5], np.float32))
            options = {"fusedActivationFunction": 0}
            self.apply(f"{name}/b", "ADD", [self.made[-1], one], x.shape, **options)
        else:
            quantization = (x.scale, -128)
            self.apply(f"{name}/r", "RELU", [x], x.shape, quantization=quantization)
        y = self.made[-1]
        own = self.quantization_of(x.dtype)
        self.apply(name, op, [y], y.shape, quantization=own, is_exact=False)

    def quotient(self, name: str) -> None:
        a = self.any_of(("float32", "int32"))
        if a is None:
            return
        b = self.constant(name, a, self.part_of(a.shape))
        op = self.rng.choice(["DIV", "DIV", "FLOOR_DIV"])
        if op == "FLOOR_DIV" and not a.is_exact:
            return
        options = {"fusedActivationFunction": 0} if op == "DIV" else {}
        exact = op == "FLOOR_DIV"
        self.apply(name, op, [a, b], a.shape, is_exact=exact, **options)

    def power(self, name: str) -> None:
        a = self.any_of(("int32",))
        if a is not None:
            b = self.graph.constant(f"{name}/p", np.array([2], np.int32))
            self.apply(name, "POW", [a, b], a.shape)

    def bits(self, name: str) -> None:
        a = self.any_of(("int32",))
        if a is None:
            return
        op = self.rng.choice(["BITWISE_XOR", "RIGHT_SHIFT"])
        count = np.array([self.rng.randint(0, 9)], np.int32)
        self.apply(name, op, [a, self.graph.constant(f"{name}/c", count)], a.shape)

    def sum_of_many(self, name: str) -> None:
        a = self.any_of(("float32", "int32"))
        if a is None:
            return
        alike = [m for m in self.made if (m.dtype, m.shape) == (a.dtype, a.shape)]
        parts = [a, *self.rng.choices(alike, k=self.rng.randint(1, 3))]
        self.apply(name, "ADD_N", parts, a.shape, is_exact=False)

    # ---- indices ---------------------------------------------------------------------

    def points(self, name: str, x: Made, depth: int, count: int) -> int:
        rows = [[self.rng.randrange(n) for n in x.shape[:depth]] for _ in range(count)]
        return self.graph.constant(f"{name}/i", np.array(rows, np.int32))

    def gather_points(self, name: str) -> None:
        x = self.any_of((*BYTES, "float32", "int32", "int64", "bool"))
        if x is None:
            return
        depth, count = self.rng.randint(1, len(x.shape)), self.rng.randint(1, 4)
        index = self.points(name, x, depth, count)
        self.apply(name, "GATHER_ND", [x, index], (count, *x.shape[depth:]))

    def scatter_points(self, name: str) -> None:
        x = self.any_of(("int8", "uint8", "float32", "int32"))
        if x is None or len(x.shape) > 3:
            return
        rows = x.shape[0]
        order = self.rng.sample(range(rows + 2), rows)
        index = np.array([[k] for k in order], np.int32)
        places = self.graph.constant(f"{name}/i", index)
        shape = (rows + 2, *x.shape[1:])
        operands = [places, x, self.ints(name, shape)]
        self.apply(name, "SCATTER_ND", operands, shape, is_exact=x.dtype != "float32")

    def reversed_sequences(self, name: str) -> None:
        x = self.any_of(("float32", "int32", "int64", "uint8", "int16"))
        if x is None or len(x.shape) < 2:
            return
        batch, time = self.rng.sample(range(len(x.shape)), 2)
        lengths = [self.rng.randint(0, x.shape[time]) for _ in range(x.shape[batch])]
        operands = [x, self.ints(name, lengths)]
        self.apply(
            name, "REVERSE_SEQUENCE", operands, x.shape, seqDim=time, batchDim=batch
        )

    def row_lookup(self, name: str) -> None:
        """Add a GATHER with batches."""
        x = self.any_of((*BYTES, "float32", "int32"))
        if x is None or len(x.shape) < 2:
            return
        rows, length = x.shape[:2]
        places = self.values.integers(0, length, (rows, 2)).astype(np.int32)
        index = self.graph.constant(f"{name}/i", places)
        shape = (rows, 2, *x.shape[2:])
        self.apply(name, "GATHER", [x, index], shape, axis=1, batchDims=1)

    def embedding(self, name: str) -> None:
        found = [m for m in self.made if m.limit and m.dtype == "int32"]
        found = [m for m in found if len(m.shape) == 1]
        if not found:
            return
        x = self.rng.choice(found)
        table = self.values.normal(size=(x.limit, 3)).astype(np.float32)
        index = self.graph.constant(f"{name}/t", table)
        shape = (*x.shape, 3)
        self.apply(name, "EMBEDDING_LOOKUP", [x, index], shape, dtype="float32")

    # ---- layers ----------------------------------------------------------------------

    def rows(self, name: str) -> None:
        """Add a FULLY_CONNECTED with any bias, activation and rank."""
        x, count = self.pick(), self.rng.randint(1, 6)
        depth = x.shape[-1]
        axis = 0 if self.kind in ("int8", "int16", "hybrid") else -1
        axis = self.rng.choice([axis, -1])
        w, bias = self.weights(name, (count, depth), count, axis, x)
        keeps = self.rng.random() < 0.5
        flat = (int(np.prod(x.shape)) // depth, count)
        options: dict[str, object] = {"keepNumDims": keeps}
        if self.kind == "hybrid" and self.rng.random() < 0.5:
            options["asymmetricQuantizeInputs"] = True
        self.apply(
            name,
            "FULLY_CONNECTED",
            [x, w, bias] if self.rng.random() < 0.7 else [x, w, -1],
            (*x.shape[:-1], count) if keeps else flat,
            quantization=self.quantization_of(x.dtype),
            is_exact=False,
            fusedActivationFunction=self.rng.choice([0, 1, 2, 3]),
            **options,
        )

    def window_norm(self, name: str) -> None:
        x = self.any_of(("float32",), rank=4)
        if x is None:
            return
        if self.rng.random() < 0.5:
            options = {"radius": 1, "bias": 1.0, "alpha": 0.5, "beta": 0.5}
            op = "LOCAL_RESPONSE_NORMALIZATION"
            self.apply(name, op, [x], x.shape, is_exact=False, **options)
            return
        size = {"filterWidth": 2, "filterHeight": 2, "strideW": 1, "strideH": 1}
        self.apply(name, "L2_POOL_2D", [x], x.shape, is_exact=False, padding=0, **size)

    def batches_to_space(self, name: str) -> None:
        x = self.any_of((*BYTES, "float32", "int32"), rank=4)
        if x is None or x.shape[0] % 4:
            return
        block = self.graph.constant(f"{name}/b", np.array([2, 2], np.int32))
        cut = np.array([[0, self.rng.randint(0, 1)], [0, 0]], np.int32)
        batch, height, width, channels = x.shape
        shape = (batch // 4, 2 * height - int(cut[0, 1]), 2 * width, channels)
        operands = [x, block, self.graph.constant(f"{name}/c", cut)]
        self.apply(name, "BATCH_TO_SPACE_ND", operands, shape)

    def slices(self, name: str) -> None:
        """Replace a part of a tensor."""
        x = self.any_of((*BYTES, "float32", "int32"))
        if x is None:
            return
        sizes = [self.rng.randint(1, n) for n in x.shape]
        part = self.same_scale_constant(name, x, sizes)
        start = [
            self.rng.randint(0, n - k) for n, k in zip(x.shape, sizes, strict=True)
        ]
        index = self.graph.constant(f"{name}/s", np.array(start, np.int32))
        self.apply(name, "DYNAMIC_UPDATE_SLICE", [x, part, index], x.shape)

    def fills(self, name: str) -> None:
        """Add a tensor of equal values, or the shape of another one."""
        x = self.any_of(NUMBERS)
        if x is None:
            return
        if self.rng.random() < 0.5:
            options = {"outType": 2}
            shape = (len(x.shape),)
            self.apply(name, "SHAPE", [x], shape, dtype="int32", **options)
            return
        value = self.same_scale_constant(name, x, ())
        operands = [self.ints(f"{name}/s", x.shape), value]
        self.apply(name, "FILL", operands, x.shape)

    def angle(self, name: str) -> None:
        y = self.any_of(("float32",), exact=True)
        if y is not None:
            x = self.constant(name, y, y.shape)
            self.apply(name, "ATAN2", [y, x], y.shape, is_exact=False)

    def known(self, name: str) -> None:
        """Add a result that depends on shapes and constants alone."""
        values: tuple[object, ...]
        match self.rng.choice(["RANGE", "RANK", "BROADCAST_ARGS", "WHERE", "dense"]):
            case "RANGE":
                start, step = self.rng.randint(-5, 5), self.rng.choice([-2, 1, 3])
                count = self.rng.randint(1, 6)
                values = start, start + count * step, step
                self.folded(name, "RANGE", values, (count,), "int32")
            case "RANK":
                x = self.any_of(NUMBERS)
                if x is not None:
                    self.apply(name, "RANK", [x], (), dtype="int32")
            case "BROADCAST_ARGS":
                values = [2, 1, 3], [4, 1]
                self.folded(name, "BROADCAST_ARGS", values, (3,), "int32")
            case "WHERE":
                mask = self.values.random((3, 4)) < 0.5
                mask[0, 0] = True
                shape = (int(mask.sum()), 2)
                self.folded(name, "WHERE", (mask,), shape, "int64")
            case _:
                places = self.rng.sample(range(6), 2)
                values = np.sort(places)[:, None], [6], self.ends(), -1
                self.folded(name, "SPARSE_TO_DENSE", values, (6,), "int32")

    def ends(self) -> list[int]:
        return [self.rng.randint(-9, 9) for _ in "ab"]

    def folded(
        self,
        name: str,
        op: str,
        values: Sequence[object],
        shape: Sequence[int],
        dtype: str,
    ) -> None:
        """Add an operator of constants."""
        operands = []
        for k, value in enumerate(values):
            array = np.asarray(value)
            kind = np.int32 if array.dtype.kind == "i" else array.dtype
            operands.append(self.graph.constant(f"{name}/{k}", array.astype(kind)))
        result = self.typed(name, dtype, shape, (0.0, 0))
        options = {"validateIndices": True} if op == "SPARSE_TO_DENSE" else {}
        table = {"RANGE": "RangeOptions", "WHERE": "WhereOptions"}.get(op, "")
        if options:
            table = "SparseToDenseOptions"
        self.connect(op, operands, [result], table, **options)

    def stored_half(self, name: str) -> None:
        """Add values that the file stores as float16."""
        x = self.any_of(("float32",))
        if x is None:
            return
        values = self.values.normal(size=self.part_of(x.shape)).astype(np.float16)
        stored = self.graph.constant(f"{name}/half", values)
        whole = self.typed(f"{name}/whole", "float32", values.shape, (0.0, 0))
        self.connect("DEQUANTIZE", [stored], [whole], "DequantizeOptions")
        options = {"fusedActivationFunction": 0, "potScaleInt16": False}
        self.apply(name, "ADD", [x, whole], x.shape, is_exact=False, **options)

    def volume(self, name: str) -> None:
        """Add a convolution of volumes, with one channel before or after it."""
        x = self.any_of(("float32",), rank=4)
        if x is None:
            return
        y = self.typed(f"{name}/x", "float32", (*x.shape, 1), (0.0, 0))
        self.connect("RESHAPE", [x, self.ints(f"{name}/s", y.shape)], [y])
        kernel = [self.rng.randint(1, min(2, n)) for n in x.shape[1:]]
        options: dict[str, object] = dict.fromkeys(
            (f"dilation{axis}Factor" for axis in "DHW"), 1
        )
        options |= dict.fromkeys((f"stride{axis}" for axis in "DHW"), 1)
        options |= {"padding": 1, "fusedActivationFunction": self.rng.choice([0, 1])}
        if self.rng.random() < 0.5:
            w = self.values.normal(size=(*kernel, 1, 2)).astype(np.float32)
            extents = [n - k + 1 for n, k in zip(x.shape[1:], kernel, strict=True)]
            operands = [y, self.graph.constant(f"{name}/w", w)]
            shape = (x.shape[0], *extents, 2)
            self.apply(name, "CONV_3D", operands, shape, is_exact=False, **options)
            return
        w = self.values.normal(size=(*kernel, 2, 1)).astype(np.float32)
        extents = [n + k - 1 for n, k in zip(x.shape[1:], kernel, strict=True)]
        shape = (x.shape[0], *extents, 2)
        options["fusedActivationFunction"] = 0
        operands = [self.ints(name, shape), self.graph.constant(f"{name}/w", w), y]
        op = "CONV_3D_TRANSPOSE"
        self.apply(name, op, operands, shape, is_exact=False, **options)

    def detections(self, name: str) -> None:
        """Add a selection of boxes, which are inputs of the model.

        The reference zeros only results of the model that are not in use, so that no
        layer reads them.
        """
        if self.graph.table is not self.file.model.subgraphs[0]:
            return
        count, classes = self.rng.randint(2, 8), self.rng.randint(1, 3)
        most = self.rng.randint(1, count)
        self.add_input(f"{name}/boxes", "float32", (1, count, 4))
        self.add_input(f"{name}/scores", "float32", (1, count, classes + 1))
        inputs = [made.index for made in self.made[-2:]]
        self.used.update(inputs)
        corners = self.values.random((count, 4)).astype(np.float32)
        anchors = self.graph.constant(f"{name}/anchors", corners)
        results = [
            self.graph.tensor(f"{name}/{k}", "float32", shape)
            for k, shape in enumerate([(1, most, 4), (1, most), (1, most), (1,)])
        ]
        options = {
            "max_detections": most,
            "max_classes_per_detection": 1,
            "detections_per_class": 100,
            "use_regular_nms": False,
            "nms_score_threshold": self.rng.choice([-100.0, 0.25]),
            "nms_iou_threshold": self.rng.choice([0.3, 0.5]),
            "num_classes": classes,
        }
        options |= {f"{axis}_scale": 10.0 for axis in "yx"}
        options |= {f"{axis}_scale": 5.0 for axis in "hw"}
        op = "custom:TFLite_Detection_PostProcess"
        self.graph.op(op, [*inputs, anchors], results, **options)
        self.graph.outputs(*results)
