"""Many random models in one firmware, compared with their reference runtime.

A model that the runtime refuses is not counted; one that the compiler refuses is, with
its reasons.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from firmwright.base.dtypes import Array, find_dtype
from firmwright.base.errors import DoesNotFitError, UnsupportedError
from firmwright.flows.samples.reference_outputs import with_module_names
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IRModule
from firmwright.ir.settings import NumericsProfile
from firmwright.oracle.compare import WHOLE_MODEL, compare_outputs
from firmwright.oracle.reference_worker import open_runtime
from firmwright.pipeline import load_module_bytes
from tests.onnx.backend import run_merged

Sample = Mapping[str, Array]
SAMPLES = 2
CALLS_PER_IMAGE = 300


@dataclass(frozen=True, slots=True)
class RandomModel:
    """A model that its reference runtime computed."""

    seed: int
    module: IRModule
    samples: Sequence[Sample]
    expected: Sequence[Sample]

    @property
    def calls(self) -> int:
        """The calls of the model and of its branches and loops."""
        functions = self.module.functions.values()
        return sum(len(f.body) for f in functions if isinstance(f, Function))

    @property
    def output_names(self) -> list[str]:
        """The outputs of the firmware, among them counts of elements in use."""
        return [value.name for value in self.module.entry_graph.results]


@dataclass
class Sweep:
    """Random models by seed: their refusals by reason, and those that differ."""

    runtime: str
    make: Callable[[int], bytes]
    board: str = "host"
    calls_per_image: int = CALLS_PER_IMAGE
    compared: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    refused_models: int = 0
    differing: list[str] = field(default_factory=list)
    not_computed: list[str] = field(default_factory=list)
    """Models that the runtime refuses, with its messages."""
    too_large: list[str] = field(default_factory=list)
    """Models that exceed the board's memory."""

    def run(self, seeds: Iterable[int]) -> Sweep:
        """Compare the models of these seeds, as many in an image as fit."""
        group: list[RandomModel] = []
        for seed in seeds:
            model = self._computed(seed)
            if model is None:
                continue
            if sum(item.calls for item in (*group, model)) > self.calls_per_image:
                self._compare_parts(group)
                group = []
            group.append(model)
        self._compare_parts(group)
        return self

    def add(self, other: Sweep) -> None:
        """Add the results of other seeds."""
        self.compared += other.compared
        self.refused += other.refused
        self.refused_models += other.refused_models
        self.differing += other.differing
        self.not_computed += other.not_computed
        self.too_large += other.too_large

    def _computed(self, seed: int) -> RandomModel | None:
        data = self.make(seed)
        try:
            runtime = open_runtime(self.runtime, data, layers=False)
        except (RuntimeError, ValueError, NotImplementedError) as error:
            self.not_computed.append(f"seed {seed}: {error}")
            return None
        suffix = "onnx" if self.runtime == "onnxruntime" else "tflite"
        try:
            module = load_module_bytes(data, f"graph{seed}.{suffix}")
        except UnsupportedError as error:
            self.refused_models += 1
            reasons = {f"{item.op}: {item.why}" for item in error.items}
            self.refused.update(reasons or {str(error)})
            return None
        entry = module.entry
        assert isinstance(entry, Function)
        rng = np.random.Generator(np.random.PCG64(seed))
        samples, expected = [], []
        for _ in range(SAMPLES):
            sample = {
                value.name: random_values(rng, value.type.dtype.name, value.type.shape)
                for value in entry.params
            }
            outputs = runtime.run([sample[name] for name in runtime.input_names])
            copies = [np.array(output) for output in outputs]
            named = dict(zip(runtime.output_names, copies, strict=True))
            samples.append(sample)
            expected.append(with_module_names(named, module))
        return RandomModel(seed, module, samples, expected)

    def _compare_parts(self, group: Sequence[RandomModel]) -> None:
        """Compare the models in one image, or in several smaller ones."""
        if not group:
            return
        try:
            self._compare(group)
        except DoesNotFitError as error:
            if len(group) == 1:
                self.too_large.append(f"seed {group[0].seed}: {error}")
                return
            middle = len(group) // 2
            self._compare_parts(group[:middle])
            self._compare_parts(group[middle:])

    def _compare(self, group: Sequence[RandomModel]) -> None:
        modules = [item.module for item in group]
        batch = list(zip(*(item.samples for item in group), strict=True))
        is_onnx = self.runtime == "onnxruntime"
        numerics: NumericsProfile = "onnx" if is_onnx else "litert"
        got = run_merged(modules, batch, self.board, numerics)
        for number, item in enumerate(group):
            own = [
                {name: values[f"{number}.{name}"] for name in item.output_names}
                for values in got
            ]
            self.compared += 1
            narrow = [
                dtype
                for array in item.expected[0].values()
                if (dtype := find_dtype(array.dtype.name)) is not None
                if dtype.has_fractions and dtype.size_bytes < 4
            ]
            tolerance = WHOLE_MODEL.with_rounding_to(narrow)
            found = compare_outputs(item.expected, own, tolerance)
            if found.mismatches:
                self.differing.append(f"seed {item.seed}: {found.first}")


def random_values(rng: np.random.Generator, dtype: str, shape: Sequence[int]) -> Array:
    """Return values of the whole range of a quantized type, and moderate others."""
    match dtype:
        case "float32":
            return np.asarray(rng.normal(size=shape) * 2, np.float32)
        case "bool":
            return np.asarray(rng.random(shape) < 0.5)
    kind = np.iinfo(dtype)
    low, high = (kind.min, kind.max) if kind.bits <= 16 else (-1000, 1000)
    return rng.integers(low, high + 1, shape).astype(dtype)
