"""Measures a model's accuracy on a data set: in floats, by its runtime, as firmware."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import UsageError
from firmwright.flows.board.model_session import ModelSession, open_session
from firmwright.flows.model.model import Model, load_model, model_inputs, model_outputs
from firmwright.flows.model.model_inspection import inspect_module
from firmwright.flows.samples.input_values import (
    describe_float_inputs,
    half_rounding,
)
from firmwright.flows.samples.labeled_data import (
    Dataset,
    convert_samples,
    evenly_spaced,
    read_dataset,
    real_values,
)
from firmwright.flows.samples.metrics import ModelRun, Task, make_task, score_runs
from firmwright.flows.samples.reference_outputs import (
    ReferenceOutputs,
    compute_reference,
    reference_runtime,
    run_numpy_reference,
    run_oracle_reference,
)
from firmwright.flows.samples.sample_batches import Tensors
from firmwright.flows.verify.layer_accuracy import (
    LayerKind,
    find_ranges,
    measure_layers,
)
from firmwright.flows.verify.spectrum_bounds import compare_with_proof
from firmwright.ir.graph.nodes import Function, TensorType
from firmwright.ir.module import IoTensor, IRModule
from firmwright.pipeline import Compilation
from firmwright.report.evaluation import (
    ChangedSample,
    Confusion,
    Evaluation,
    LayerAccuracy,
    RunScores,
)

log = logging.getLogger(__name__)
BATCH = 256
MACS_OF_BATCH = 5_000_000_000
"""The limits of the samples that one process of the reference runtime computes."""
LAYERS_COMPARED = 32
"""The number of samples for the errors of layers."""
DATA_MOVEMENT_OPS = frozenset({"dequantize", "quantize", "reshape", "transpose"})
"""Operators whose results have no errors of their own."""


def evaluate(
    compiled: Compilation,
    data: str | Path | Mapping[str, Array] | Dataset,
    *,
    labels: str | Path = "",
    classes: Sequence[str] = (),
    against: Model | str | Path | None = None,
    metric: str = "",
    output: str = "",
    samples: int | None = None,
    compared: int = LAYERS_COMPARED,
    open_with: Callable[[Compilation], ModelSession] = open_session,
) -> Evaluation:
    """Run a data set through the firmware, the model's runtime and a float model.

    Args:
        data: A data set, the path of one, or arrays with a leading axis of samples: the
            inputs and `labels`.
        labels: A file with the labels, if the data set has none.
        classes: The names of the classes in the model's order.
        against: The float model; the layers of a quantized model are compared with it.
        metric: One of `METRICS`; by default it follows from the labels and the shape of
            the output.
        output: The output to judge; by default the first, or the scores after a class
            index.
        samples: The largest number of samples, which are chosen evenly.
        compared: The largest number of samples for the errors of layers.

    Raise UsageError for invalid data.
    """
    inputs = compiled.module.io.inputs
    dataset = _dataset_of(data, inputs, labels, classes, samples)
    position = judged_output(compiled.module.io.outputs, output)
    task = _task_for(compiled, dataset, position, metric)
    where, rounding = dataset.where, half_rounding(compiled.module)
    own, warnings = convert_samples(dataset.samples, inputs, inputs, where, rounding)
    model = load_model(against) if isinstance(against, str | Path) else against
    floats = () if model is None else _samples_for(model, dataset, inputs)
    runs, mismatches = _own_runs(compiled, own, position, open_with)
    layers: tuple[LayerAccuracy, ...] = ()
    chosen = evenly_spaced(len(own), compared)
    if model is not None:
        runs.insert(0, _run_by_runtime("float model", model, floats, position))
        layers = _layers(compiled, model, [(own[k], floats[k]) for k in chosen])
    return Evaluation(
        model=compiled.module.name,
        board=compiled.board.name,
        data=dataset.where,
        samples=len(own),
        metric=task.metric,
        is_labeled=task.labels is not None,
        classes=task.classes,
        runs=score_runs(runs, task),
        mismatches=mismatches,
        compared=len(chosen),
        layers=layers,
        warnings=(*warnings, *describe_float_inputs(compiled.imported, own)),
        confusions=_confusions(runs, task),
        changed=_changed(runs, task, dataset),
    )


def _dataset_of(
    data: str | Path | Mapping[str, Array] | Dataset,
    inputs: Sequence[IoTensor],
    labels: str | Path,
    classes: Sequence[str],
    samples: int | None,
) -> Dataset:
    """Return the data set of the argument `data`, with at most `samples` samples."""
    if not isinstance(data, Dataset):
        data = read_dataset(data, inputs, labels, classes)
    return data.spread(samples or len(data.samples))


def _task_for(
    compiled: Compilation, dataset: Dataset, position: int, metric: str
) -> Task:
    io = compiled.module.io
    output_shape = io.outputs[position].type.shape
    return make_task(dataset, io.inputs[0].type.shape, output_shape, metric)


def _own_runs(
    compiled: Compilation,
    samples: Sequence[Tensors],
    position: int,
    open_with: Callable[[Compilation], ModelSession],
) -> tuple[list[ModelRun], int]:
    """Run the model by its runtime and as firmware; count the values that differ."""
    io, board = compiled.module.io, compiled.board.name
    size = _batch_size(compiled.imported, len(samples))
    outputs: list[Tensors] = []
    with ThreadPoolExecutor(1) as pool:
        compute = partial(compute_reference, compiled)
        future = pool.submit(_batches, compute, samples, size)
        with open_with(compiled) as session:
            for start in range(0, len(samples), BATCH):
                log.info("%s: sample %d of %d", board, start, len(samples))
                outputs += session.run_all(samples[start : start + BATCH])
        reference = future.result()
    inputs = _stack(samples, io.inputs)
    of_model = _stack(reference.outputs, io.outputs, position)
    of_firmware = _stack(outputs, io.outputs, position)
    runs = [
        ModelRun("model", reference.name, inputs, of_model),
        ModelRun("firmware", board, inputs, of_firmware),
    ]
    expected = reference.outputs
    compared = compare_with_proof(compiled.imported, samples, expected, outputs)
    return runs, compared.mismatches


def compare_models(
    models: Mapping[str, Model], data: Dataset, metric: str = ""
) -> tuple[RunScores, ...]:
    """Return the figures of models by their runtimes; `data` is for the first one."""
    first = next(iter(models.values()))
    inputs, outputs = model_inputs(first), model_outputs(first)
    position = judged_output(outputs)
    task = make_task(data, inputs[0].type.shape, outputs[position].type.shape, metric)
    runs: list[ModelRun] = []
    for name, model in models.items():
        samples = _samples_for(model, data, inputs)
        runs.append(_run_by_runtime(name, model, samples, position))
    return score_runs(runs, task)


def judged_output(outputs: Sequence[IoTensor], name: str = "") -> int:
    """Return the position of the output `name`, by default the first or class scores.

    Classifiers of scikit-learn return a class index before the scores.
    """
    if name:
        names = [tensor.name for tensor in outputs]
        if name not in names:
            hint = f"the outputs are {', '.join(names)}."
            raise UsageError(f"the model has no output {name}.", hint=hint)
        return names.index(name)
    first = outputs[0].type
    is_real = first.dtype.has_fractions or first.quantization
    if not is_real and first.elements <= 1:  # a class index
        for position, tensor in enumerate(outputs):
            if tensor.type.elements > 1:
                return position
    return 0


def _run_by_runtime(
    what: str, model: Model, samples: Sequence[Tensors], position: int
) -> ModelRun:
    size = _batch_size(model.module, len(samples))
    result = _batches(lambda part: _run(model, part), samples, size)
    inputs = _stack(samples, model_inputs(model))
    outputs = _stack(result.outputs, model_outputs(model), position)
    return ModelRun(what, result.name, inputs, outputs)


def _run(
    model: Model, samples: Sequence[Tensors], *, layers: bool = False
) -> ReferenceOutputs:
    if model.source is None:
        return run_numpy_reference(model.module, samples)
    return run_oracle_reference(model, samples, reference_runtime(model), layers=layers)


def _batch_size(module: IRModule, count: int) -> int:
    """Return `count` for a model with state."""
    if not isinstance(module.entry, Function):
        return BATCH
    if module.entry.state:
        return count
    return max(1, min(BATCH, MACS_OF_BATCH // (inspect_module(module).macs or 1)))


def _batches(
    run: Callable[[Sequence[Tensors]], ReferenceOutputs],
    samples: Sequence[Tensors],
    size: int,
) -> ReferenceOutputs:
    """Run the samples in parts, which limits the time and memory of a process."""
    parts: list[ReferenceOutputs] = []
    outputs: list[Tensors] = []
    for start in range(0, len(samples), size):
        log.info("the reference: sample %d of %d", start, len(samples))
        part = run(samples[start : start + size])
        parts.append(part)
        outputs += part.outputs
    return replace(parts[0], outputs=tuple(outputs))


def _samples_for(
    model: Model, dataset: Dataset, inputs: Sequence[IoTensor]
) -> tuple[dict[str, Array], ...]:
    """Return the samples for `model` of a data set read for `inputs` of its shapes."""
    own = model_inputs(model)
    own_shapes = [list(tensor.type.shape) for tensor in own]
    shapes = [list(tensor.type.shape) for tensor in inputs]
    if own_shapes != shapes:
        what = (
            f"the inputs of this model are {own_shapes}, those of the other one "
            f"{shapes}."
        )
        hint = "both need inputs of the same shapes."
        raise UsageError(what, where=model.file, hint=hint)
    rounding = half_rounding(model.module)
    samples, _ = convert_samples(dataset.samples, own, inputs, dataset.where, rounding)
    return samples


def _stack(
    samples: Sequence[Tensors], tensors: Sequence[IoTensor], position: int = 0
) -> Array:
    """Return the real values of one of the tensors."""
    tensor = tensors[min(position, len(tensors) - 1)]
    name, kind = tensor.name, tensor.type
    return np.stack([real_values(sample[name], kind) for sample in samples])


def _confusions(runs: Sequence[ModelRun], task: Task) -> tuple[Confusion, ...]:
    """Return the firmware's pairs of label and class, the most frequent first."""
    if not task.is_classifying or task.labels is None:
        return ()
    counts = Counter(zip(task.labels.tolist(), _classes(runs[-1], task), strict=True))
    confusions: list[Confusion] = []
    for (label, predicted), count in counts.most_common():
        confusions.append(Confusion(label, predicted, count))
    return tuple(confusions)


def _changed(
    runs: Sequence[ModelRun], task: Task, dataset: Dataset
) -> tuple[ChangedSample, ...]:
    """Return the samples for which the first run and the firmware differ in class."""
    if not task.is_classifying:
        return ()
    first, last = _classes(runs[0], task), _classes(runs[-1], task)
    labels = [None] * len(last) if task.labels is None else task.labels.tolist()
    changed: list[ChangedSample] = []
    rows = zip(dataset.names, labels, first, last, strict=True)
    for name, label, before, after in rows:
        if before != after:
            changed.append(ChangedSample(name, label, before, after))
    return tuple(changed)


def _classes(run: ModelRun, task: Task) -> list[int]:
    classes: list[int] = run.scores(task.metric).argmax(axis=1).tolist()
    return classes


def _layers(
    compiled: Compilation, model: Model, samples: Sequence[tuple[Tensors, Tensors]]
) -> tuple[LayerAccuracy, ...]:
    """Compare the layers that have the same name in both models, the worst first.

    Each sample is a pair: for the compiled model and for the float model.
    """
    graph, entry = model.module.entry, compiled.imported.entry
    if not (isinstance(graph, Function) and isinstance(entry, Function)):
        return ()
    types: dict[str, TensorType] = {}
    for call in entry.body:
        for value in call.outputs:
            types[value.name] = value.type
    kinds: dict[str, LayerKind] = {}
    for index, call in enumerate(graph.body):
        if call.op not in DATA_MOVEMENT_OPS:
            # Formats name layers by the file's tensor or by the module's value.
            for name in (call.span.tensor, call.outputs[0].name):
                if name:
                    kinds[name] = LayerKind(call.op, index)

    def run(part: slice) -> Iterator[tuple[Tensors, Tensors]]:
        own, floats = zip(*samples[part], strict=True)
        expected = _results(_run(model, floats, layers=True))
        actual = _results(compute_reference(compiled, own, layers=True))
        for reference, results in zip(expected, actual, strict=True):
            real: dict[str, Array] = {}
            for name, values in results.items():
                if name in types:
                    real[name] = real_values(values, types[name])
                elif values.dtype.kind == "f":
                    real[name] = values
            yield reference, real

    return measure_layers(len(samples), run, kinds, find_ranges(entry))


def _results(reference: ReferenceOutputs) -> list[Tensors]:
    """Return the outputs and the layers of each sample."""
    layers = reference.layers or ({},) * len(reference.outputs)
    results: list[Tensors] = []
    for outputs, values in zip(reference.outputs, layers, strict=True):
        results.append({**outputs, **values})
    return results
