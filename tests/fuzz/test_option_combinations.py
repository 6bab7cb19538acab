"""Random graphs with random options equal the reference runtimes, run after run.

The samples run in order and again in reverse order in one session, so that an output
which depends on an earlier run differs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from firmwright.base.errors import (
    DoesNotFitError,
    FirmwrightError,
    UnsupportedError,
    UsageError,
)
from firmwright.device.session import Session
from firmwright.device.transport_selection import open_transport
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model
from firmwright.flows.samples.sample_batches import generate_samples
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IoTensor
from firmwright.oracle.compare import compare_outputs
from firmwright.oracle.reference_worker import open_runtime
from firmwright.pipeline import Compilation, bundle, load_module_bytes
from tests.fuzz.option_combinations import (
    BOARDS,
    TWO_CORES,
    Combination,
    random_combination,
)
from tests.fuzz.random_tflite import KINDS as TFLITE_KINDS
from tests.fuzz.random_tflite import random_graph
from tests.onnx.random_qdq_graphs import random_qdq_model
from tests.onnx.random_qoperator_graphs import random_qoperator_model

Tensors = dict[str, np.ndarray]
KINDS = (*TFLITE_KINDS, "qdq", "qoperator")
SAMPLES = 3
IN_GATE = {"host": 2, "mps2-an386": 1}
DEEP_IMAGES, BLOCK = 40, 4
"""Images for each board; with their models about a thousand graphs in all."""
KIND_IMAGES, MODELS_OF_KIND = 52, 20
REFUSED = re.compile(
    r"--stream-input-rows|no rows|does not fit|too (large|small)|"
    r"--flash|--ram|exceeds|pool|tvm|zig|--pipeline-runs is not possible"
)
"""The reasons for which a combination may be refused."""
MODEL_REFUSED = re.compile("an interpolation of u?int8")


@dataclass(frozen=True)
class RandomModel:
    """A model with samples of its inputs, and the reference's outputs."""

    model: Model
    samples: Sequence[Tensors]
    expected: Sequence[Tensors]


def random_file(seed: int, kind: str) -> tuple[bytes, str]:
    """Return a model and the suffix of its file."""
    match kind:
        case "qdq":
            return random_qdq_model(seed), ".onnx"
        case "qoperator":
            return random_qoperator_model(seed), ".onnx"
    return random_graph(seed, kind), ".tflite"


def random_model(seed: int, kind: str = "") -> RandomModel | None:
    """Return the model of the seed, or None if an operator is refused with a reason."""
    data, suffix = random_file(seed, kind or KINDS[seed % len(KINDS)])
    try:
        module = load_module_bytes(data, f"graph{seed}{suffix}")
    except UnsupportedError as error:
        if all(MODEL_REFUSED.search(item.why) for item in error.items):
            return None
        raise
    assert isinstance(module.entry, Function)
    inputs = [
        IoTensor(value.name, value.name, value.type) for value in module.entry.params
    ]
    samples = generate_samples(inputs, SAMPLES).samples
    runtime = open_runtime(
        "litert" if suffix == ".tflite" else "onnxruntime", data, layers=False
    )
    expected = []
    for sample in samples:
        results = runtime.run([sample[name] for name in runtime.input_names])
        copies = [np.array(result) for result in results]
        expected.append(dict(zip(runtime.output_names, copies, strict=True)))
    return RandomModel(Model(module, data), samples, expected)


def there_and_back(items: Sequence[Tensors]) -> list[Tensors]:
    return [*items, *reversed(items)]


def run_image(
    models: Sequence[RandomModel], combination: Combination
) -> list[list[Tensors]]:
    """Return the outputs of each model for its samples, in order and in reverse."""
    parts = [
        compile_for(item.model, combination.board, **combination.options)
        for item in models
    ]
    if len(parts) == 1:
        return [
            _run_alone(
                parts[0], there_and_back(models[0].samples), combination.compiler
            )
        ]
    both = bundle(parts, concurrent=combination.is_concurrent)
    image = build_image(both, compiler=combination.compiler)
    identity = bytes.fromhex(both.model_id)
    outputs: list[list[Tensors]] = [[] for _ in parts]
    batches = [there_and_back(item.samples) for item in models]
    with Session(open_transport(both.board, image.elf), model_id=identity) as session:
        for step in zip(*batches, strict=True):
            given = {
                f"{part.module.name}/{key}": value
                for part, sample in zip(parts, step, strict=True)
                for key, value in sample.items()
            }
            found = session.run(given)
            for part, kept in zip(parts, outputs, strict=True):
                kept.append(
                    {
                        y.name: found[f"{part.module.name}/{y.name}"].reshape(
                            y.type.shape
                        )
                        for y in part.module.io.outputs
                    }
                )
    return outputs


def _run_alone(
    compiled: Compilation, samples: Sequence[Tensors], compiler: str
) -> list[Tensors]:
    with open_session(compiled, compiler=compiler) as session:
        return list(session.run_all(samples))


def differing(
    models: Sequence[RandomModel], outputs: Sequence[Sequence[Tensors]]
) -> list[str]:
    pairs = zip(models, outputs, strict=True)
    found = [
        (item, compare_outputs(there_and_back(item.expected), results))
        for item, results in pairs
    ]
    return [
        f"{item.model.name}: {result.first}"
        for item, result in found
        if result.mismatches
    ]


def check(
    seeds: Iterable[int], board: str, kind: str = "", count: int = 0
) -> Counter[str]:
    """Run the seeds' images; return how many models were compared and how many refused.

    An image has `count` models of one kind, by default the number of the combination
    and any kind.
    """
    counts: Counter[str] = Counter()
    for seed in seeds:
        combination = random_combination(seed, board, count)
        drawn = [random_model(100 * seed + k, kind) for k in range(combination.models)]
        models = [model for model in drawn if model is not None]
        counts["refused models"] += len(drawn) - len(models)
        if not models:
            continue
        refusal = ""
        try:
            outputs = run_image(models, combination)
        except (UsageError, DoesNotFitError, UnsupportedError) as error:
            refusal = str(error)
        except FirmwrightError as error:
            raise AssertionError(f"seed {seed}: {combination}") from error
        if refusal:
            assert REFUSED.search(refusal), f"seed {seed}: {combination}: {refusal}"
            counts["refused"] += len(models)
            continue
        assert differing(models, outputs) == [], f"seed {seed}: {combination}"
        counts["compared"] += len(models)
    return counts


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "board",
    [
        pytest.param("host", marks=pytest.mark.host_c),
        pytest.param("mps2-an386", marks=pytest.mark.qemu),
    ],
)
def test_a_sample_of_combinations_equals_litert(board: str) -> None:
    check(range(IN_GATE[board]), board)


@pytest.mark.deep
@pytest.mark.qemu
@pytest.mark.parametrize("first", range(0, DEEP_IMAGES, BLOCK))
@pytest.mark.parametrize("board", [*BOARDS, TWO_CORES])
def test_combinations_equal_litert(board: str, first: int) -> None:
    counts = check(range(first, first + BLOCK), board)
    print(f"{board}, seeds {first} to {first + BLOCK - 1}: {dict(counts)}")
    assert counts["compared"] >= counts["refused"]


@pytest.mark.deep
@pytest.mark.host_c
@pytest.mark.parametrize("first", range(0, KIND_IMAGES, BLOCK))
@pytest.mark.parametrize("kind", KINDS)
def test_a_thousand_graphs_of_each_kind_equal_their_reference(
    kind: str, first: int
) -> None:
    counts = check(range(first, first + BLOCK), "host", kind, MODELS_OF_KIND)
    print(f"{kind}, images {first} to {first + BLOCK - 1}: {dict(counts)}")
    assert counts["compared"] >= counts["refused"] + counts["refused models"]
