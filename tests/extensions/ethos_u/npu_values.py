"""Values, constants and geometry of random quantized networks for an Ethos-U."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tests.state.model_writer import ModelFile

RESULT_SCALES = {
    ("LOGISTIC", "int8"): (1 / 256, -128),
    ("LOGISTIC", "uint8"): (1 / 256, 0),
    ("LOGISTIC", "int16"): (1 / 32768, 0),
    ("TANH", "int8"): (1 / 128, 0),
    ("TANH", "uint8"): (1 / 128, 128),
    ("TANH", "int16"): (1 / 32768, 0),
    ("SOFTMAX", "int8"): (1 / 256, -128),
    ("SOFTMAX", "uint8"): (1 / 256, 0),
    ("SOFTMAX", "int16"): (1 / 32768, 0),
}
"""Results with a quantization that the operator defines."""
MOVES = ("SLICE", "RESHAPE", "TRANSPOSE", "CONCATENATION")
VALID, SAME = 1, 0


@dataclass(frozen=True, slots=True)
class Value:
    index: int
    shape: tuple[int, ...]
    scale: float
    zero_point: int


class NetworkWriter:
    """Writes tensors and operators of one type and records the readable values."""

    def __init__(self, seed: int, dtype: str) -> None:
        self.rng = random.Random(f"npu {seed}")
        self.numbers = np.random.Generator(np.random.PCG64(seed))
        self.dtype = dtype or self.rng.choice(
            ["int8", "int8", "int8", "uint8", "int16"]
        )
        self.file = ModelFile()
        self.graph = self.file.graph("main")
        self.values: list[Value] = []
        self.used: set[int] = set()
        self.moved: set[int] = set()
        """Results of slices, and of operators that move their elements."""

    def quantization(self) -> tuple[float, int]:
        zero_points = {"int8": (-128, 127), "uint8": (0, 255), "int16": (0, 0)}[
            self.dtype
        ]
        low, high = (-15, -9) if self.dtype == "int16" else (-8, -2)
        scale = float(np.float32(2 ** self.rng.uniform(low, high)))
        return scale, self.rng.randint(*zero_points)

    def tensor(
        self, name: str, shape: Sequence[int], scale: float, zero_point: int
    ) -> Value:
        index = self.graph.tensor(name, self.dtype, shape, scale, zero_point)
        self.values.append(Value(index, tuple(shape), scale, zero_point))
        return self.values[-1]

    def pick(self) -> Value:
        """Return the newest feature map, or sometimes an older one."""
        maps = [value for value in self.values if len(value.shape) == 4]
        return maps[-1] if self.rng.random() < 0.7 else self.rng.choice(maps)

    def like(self, x: Value) -> list[Value]:
        """Return the values of the same shape and quantization."""
        kind = (x.shape, x.scale, x.zero_point)
        return [v for v in self.values if (v.shape, v.scale, v.zero_point) == kind]

    def emit(
        self,
        name: str,
        op: str,
        inputs: Sequence[Value | int],
        shape: Sequence[int],
        table: str = "",
        same: bool = False,
        **options: object,
    ) -> Value:
        first = next(item for item in inputs if isinstance(item, Value))
        quantization = (first.scale, first.zero_point) if same else self.quantization()
        result = self.tensor(
            name, shape, *RESULT_SCALES.get((op, self.dtype), quantization)
        )
        indices = [item.index if isinstance(item, Value) else item for item in inputs]
        self.used.update(indices)
        if op in MOVES:
            self.moved.add(result.index)
        self.graph.op(
            op, indices, [result.index], *([table] if table else []), **options
        )
        return result

    def ints(self, name: str, numbers: object) -> int:
        return self.graph.constant(f"{name}/c", np.array(numbers, np.int32))

    def activation(self) -> int:
        return self.rng.choice([0, 0, 1, 3])  # none, RELU, RELU6

    def output_size(self, size: int, kernel: int, stride: int, padding: int) -> int:
        return -(-(size - kernel + 1 if padding == VALID else size) // stride)

    def weights(
        self, name: str, shape: tuple[int, ...], count: int, axis: int, source: Value
    ) -> tuple[int, int]:
        is_unsigned = self.dtype == "uint8"
        scales = (
            2 ** self.numbers.uniform(-8, -4, 1 if is_unsigned or axis < 0 else count)
        ).astype(np.float32)
        low, high = (0, 256) if is_unsigned else (-127, 128)
        # Few values: the encoder uses palettes and runs of zeros.
        if self.rng.random() < 0.3:
            low, high = (125, 131) if is_unsigned else (-2, 3)
        numbers = self.numbers.integers(low, high, shape).astype(
            "uint8" if is_unsigned else "int8"
        )
        if self.rng.random() < 0.4:
            numbers[self.numbers.random(shape) < self.rng.random()] = (
                128 if is_unsigned else 0
            )
        weights = self.graph.constant(f"{name}/w", numbers)
        self.quantize_constant(weights, scales, max(axis, 0), 128 if is_unsigned else 0)
        kind = np.int64 if self.dtype == "int16" else np.int32
        bias = self.numbers.integers(-3000, 3000, count).astype(kind)
        biases = self.graph.constant(f"{name}/b", bias)
        self.quantize_constant(biases, scales * np.float32(source.scale), 0)
        return weights, biases

    def quantize_constant(
        self, index: int, scales: np.ndarray, axis: int, zero_point: int = 0
    ) -> None:
        tensors = self.graph.table.tensors
        spare = self.graph.tensor(
            "", "int8", (), [float(s) for s in scales], zero_point, axis=axis
        )
        tensors[index].quantization = tensors[spare].quantization
        del tensors[spare]

    def window(
        self, x: Value
    ) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int], int]:
        """Kernel, stride, dilation and padding that fit the map."""
        stride = (self.rng.choice([1, 1, 2, 3]), self.rng.choice([1, 1, 2, 3]))
        dilation = (1, 1)
        if stride == (1, 1) and self.rng.random() < 0.25:
            dilation = (self.rng.choice([1, 2]), self.rng.choice([1, 2]))
        kernel = (
            self.rng.choice([1, 2, 3, 3, 5, 9]),
            self.rng.choice([1, 2, 3, 3, 5, 9]),
        )
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
        fits = reach[0] <= x.shape[1] and reach[1] <= x.shape[2]
        return (
            kernel,
            stride,
            dilation,
            self.rng.choice([SAME, VALID]) if fits else SAME,
        )

    def map_shape(
        self,
        x: Value,
        kernel: tuple[int, int],
        stride: tuple[int, int],
        dilation: tuple[int, int],
        padding: int,
    ) -> list[int]:
        return [
            self.output_size(
                x.shape[1 + a], (kernel[a] - 1) * dilation[a] + 1, stride[a], padding
            )
            for a in (0, 1)
        ]
