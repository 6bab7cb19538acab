"""The reference outputs of a model.

The reference is the model file's runtime if available, the operators' numpy references
for other graphs, and the TIR interpreter for lowered modules.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from firmwright.base.counted_outputs import without_counts
from firmwright.base.dtypes import FLOAT32, Array, DType
from firmwright.base.errors import InternalError, ToolFailedError
from firmwright.base.progress_log import ProgressLog
from firmwright.flows.model.model import Model
from firmwright.flows.samples.bounded_shapes import (
    compilation_at,
    lengths_of,
    size_of,
)
from firmwright.flows.samples.sample_batches import Tensors, until_late_outputs
from firmwright.frontends.onnx import is_onnx
from firmwright.frontends.pytorch import is_pytorch
from firmwright.frontends.tflite import has_tensor_lists, names_in_file, read_tflite
from firmwright.ir import tir
from firmwright.ir.graph.evaluate import (
    evaluate_graph,
    initial_state,
    next_state,
    numerics_of,
)
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IoTensor, IRModule
from firmwright.ir.tir.interpreter import Interpreter
from firmwright.ops.registry import op_table
from firmwright.ops.storage_types import convert
from firmwright.oracle.compare import (
    WHOLE_MODEL,
    WHOLE_MODEL_IN_DOUBLE,
    Tolerance,
)
from firmwright.oracle.reference_runner import (
    RUNTIME_TITLES,
    RuntimeName,
    run_reference,
)
from firmwright.partitioning.backend_libraries import collect_intrinsics
from firmwright.pipeline import Compilation
from firmwright.schedules.registry import INTRINSICS

log = logging.getLogger(__name__)
NUMPY_REFERENCE = "firmwright numpy references"
INTERPRETER_REFERENCE = "firmwright TIR interpreter"
_TFLITE_RUNTIMES = ("litert", "tflm", "litert-optimized", "litert-xnnpack")
_TENSOR_LISTS_NOTE = (
    "LiteRT and TFLM do not run a model with TensorFlow's tensor lists, so that the "
    "reference is the operators' definitions, computed by numpy."
)


@dataclass(frozen=True, slots=True)
class ReferenceOutputs:
    """Expected outputs by sample, with values of `layers` that have unique names."""

    name: str
    outputs: tuple[Tensors, ...]
    layers: tuple[Tensors, ...] = field(default=())
    note: str = ""


def compute_reference(
    compiled: Compilation, samples: Sequence[Tensors], *, layers: bool = False
) -> ReferenceOutputs:
    """Return the expected outputs of `samples`.

    Raise ToolMissingError or ToolFailedError.
    """
    if compiled.resized:
        return _reference_of_sizes(compiled, samples, layers=layers)
    calls: set[str] = set()
    for graph in compiled.imported.graphs:
        calls.update(call.op for call in graph.body)
    if compiled.source is not None and "custom" not in calls:
        runtime = reference_runtime(compiled)
        return run_oracle_reference(compiled, samples, runtime, layers=layers)
    if isinstance(compiled.imported.entry, Function):
        return run_numpy_reference(compiled.imported, samples)
    return run_interpreter(compiled.module, samples)


def _reference_of_sizes(
    compiled: Compilation, samples: Sequence[Tensors], *, layers: bool
) -> ReferenceOutputs:
    """Return the outputs of the model at the size of each sample."""
    axis = compiled.module.settings.axis
    assert axis is not None
    places: dict[int, list[int]] = {}
    for place, sample in enumerate(samples):
        places.setdefault(size_of(sample, axis), []).append(place)
    outputs: list[Tensors] = [{}] * len(samples)
    values: list[Tensors] = [{}] * len(samples)
    name = note = ""
    progress = ProgressLog(log, f"reference: size of {axis.name}", len(places))
    for number, (size, own) in enumerate(places.items()):
        progress.show(number)
        at = compilation_at(compiled, size)
        found = compute_reference(at, [samples[place] for place in own], layers=layers)
        name, note = found.name, note or found.note
        for index, place in enumerate(own):
            lengths = lengths_of(found.outputs[index], compiled)
            outputs[place] = {**found.outputs[index], **lengths}
            values[place] = found.layers[index] if found.layers else {}
    return ReferenceOutputs(name, tuple(outputs), tuple(values) if layers else (), note)


def float_tolerance(module: IRModule) -> Tolerance:
    """Return the tolerance of an imported model's float outputs."""
    graph = module.entry
    if not isinstance(graph, Function):
        return WHOLE_MODEL
    values = [*graph.params, *graph.results]
    made: dict[DType, None] = {}
    for call in graph.body:
        values += [*filter(None, call.inputs), *call.outputs]
        made |= dict.fromkeys(value.type.dtype for value in call.outputs)
    has_float32 = any(value.type.dtype == FLOAT32 for value in values)
    tolerance = WHOLE_MODEL if has_float32 else WHOLE_MODEL_IN_DOUBLE
    rounded = [kind for kind in made if kind.computed_as and kind.has_fractions]
    return tolerance.with_rounding_to(rounded)


def quantized_values(module: IRModule, samples: Sequence[Tensors]) -> dict[str, Array]:
    """Return the numpy references' integers by name, for PyTorch's sums near ties."""
    names: list[str] = []
    for call in module.entry_graph.body:
        for value in call.outputs:
            if value.type.quantization is not None:
                names.append(value.name)
    if not names:
        return {}
    layers = run_numpy_reference(module, samples).layers
    stacked: dict[str, Array] = {}
    for name in names:
        stacked[name] = np.stack([sample[name] for sample in layers])
    return stacked


def reference_runtime(compiled: Compilation | Model) -> RuntimeName:
    if compiled.source is not None and is_onnx(compiled.source, ""):
        return "onnxruntime"
    if compiled.source is not None and is_pytorch(compiled.source):
        return "pytorch"
    return "tflm" if numerics_of(compiled.module) == "tflm" else "litert"


def run_oracle_reference(
    compiled: Compilation | Model,
    samples: Sequence[Tensors],
    runtime: RuntimeName,
    *,
    layers: bool = False,
) -> ReferenceOutputs:
    """Return the outputs of the model file by its runtime, and of its layers by name.

    Layers that share a name are omitted. A model with tensor lists, which its runtime
    does not have, is computed by numpy.
    """
    if compiled.source is None:
        raise InternalError("there is no model file for the oracle to run.")
    graph = compiled.module if isinstance(compiled, Model) else compiled.imported
    if _has_tensor_lists(compiled.source, runtime):
        return replace(run_numpy_reference(graph, samples), note=_TENSOR_LISTS_NOTE)
    log.info("running %s", RUNTIME_TITLES[runtime])
    subgraph = compiled.module.origin.subgraph
    integers = quantized_values(graph, samples) if runtime == "pytorch" else {}
    names = _names_in_file(compiled.source, subgraph, runtime)
    axis = graph.settings.axis
    if axis is not None:
        samples = [{k: v for k, v in s.items() if k != axis.name} for s in samples]
    result = run_reference(
        compiled.source,
        [_renamed(sample, names) for sample in samples],
        runtime,
        layers=layers,
        subgraph=subgraph,
        integers=integers,
    )
    ours = {theirs: name for name, theirs in names.items()}
    uses = Counter(result.layer_names.values())
    layers_of_samples: list[dict[str, Array]] = []
    for values in result.layers:
        named: dict[str, Array] = {}
        for index, name in result.layer_names.items():
            if uses[name] == 1:
                named[ours.get(name, name)] = _as_stored(values[index], runtime)
        layers_of_samples.append(named)
    module = compiled.module
    outputs = [with_module_names(values, module) for values in result.outputs]
    return ReferenceOutputs(
        name=f"{result.name} {result.version}",
        outputs=tuple(outputs),
        layers=tuple(layers_of_samples),
        note=_rounding_note(*result.rounding, RUNTIME_TITLES[runtime]),
    )


def _has_tensor_lists(source: bytes, runtime: RuntimeName) -> bool:
    return runtime in _TFLITE_RUNTIMES and has_tensor_lists(read_tflite(source, ""))


def _names_in_file(
    source: bytes, subgraph: int, runtime: RuntimeName
) -> dict[str, str]:
    """Return the names in a .tflite file of tensors that its signature names."""
    if runtime not in _TFLITE_RUNTIMES:
        return {}
    return names_in_file(read_tflite(source, ""), subgraph)


def _renamed(sample: Tensors, names: Mapping[str, str]) -> Tensors:
    return {names.get(name, name): values for name, values in sample.items()}


def _rounding_note(changed: int, values: int, runtime: str) -> str:
    if not changed:
        return ""
    return (
        f"{runtime}'s float sums round {changed:,} of {values:,} quantized values to "
        "the other side of a tie within 1/64 of a step."
    )


def _as_stored(values: Array, runtime: RuntimeName) -> Array:
    """Return ONNX Runtime's intermediate uint8 values 128 lower, as they are stored."""
    if runtime != "onnxruntime" or values.dtype != np.uint8:
        return values
    return np.asarray(values ^ np.uint8(128)).view(np.int8)


def with_module_names(values: Tensors, module: IRModule) -> dict[str, Array]:
    """Replace the output names of the model file by the module's, in order.

    The file has no outputs for the numbers of elements in use, the module none without
    elements. Outputs of the same names correspond.
    """
    entry = module.entry
    if isinstance(entry, Function):
        names = [value.name for value in entry.results]
    else:
        names = [tensor.name for tensor in module.io.outputs]
    if not set(names) <= set(values):
        plain = without_counts(names)
        if set(plain) <= set(values) or len(values) < len(names):
            names = plain
    if set(names) < set(values):
        values = {name: values[name] for name in names}
    elif len(values) > len(names):
        values = {name: array for name, array in values.items() if array.size}
    if len(values) != len(names):
        what = f"the reference has {len(values)} named outputs, the model {len(names)}."
        raise ToolFailedError(what)
    types = {tensor.name: tensor.type.dtype for tensor in module.io.outputs}
    named: dict[str, Array] = {}
    for name, array in zip(names, values.values(), strict=True):
        dtype = types.get(name)
        # Files have no arrays of storage types: theirs are those that compute them.
        is_wide = dtype is not None and array.dtype == dtype.computed.np != dtype.np
        named[name] = convert(array, dtype) if dtype and is_wide else array
    return named


def run_numpy_reference(
    module: IRModule, samples: Sequence[Tensors]
) -> ReferenceOutputs:
    """Evaluate a graph by numpy references, its PrimFuncs by the TIR interpreter."""
    entry = module.entry_graph
    log.info("computing the reference with numpy")
    values, state = [], initial_state(module)
    intrinsics = collect_intrinsics(module, INTRINSICS)
    for sample in until_late_outputs(samples, module.results.pipelined_runs):
        values.append(evaluate_graph(module, sample, op_table(), intrinsics, state))
        state = next_state(module, values[-1])
    results = [value.name for value in entry.results]
    outputs: list[Tensors] = []
    for found in values:
        outputs.append({name: found[name] for name in results})
    late = module.results.pipelined_runs
    return ReferenceOutputs(
        NUMPY_REFERENCE, tuple(outputs[late:]), tuple(values[late:])
    )


def run_interpreter(module: IRModule, samples: Sequence[Tensors]) -> ReferenceOutputs:
    """Run a lowered module by the TIR interpreter, in memory arranged by its plan."""
    main = module.aot_main
    log.info("interpreting the module")
    functions: dict[str, tir.PrimFunc] = {}
    for name, function in module.functions.items():
        if isinstance(function, tir.PrimFunc):
            functions[name] = function
    intrinsics = collect_intrinsics(module, INTRINSICS)
    interpreter = Interpreter(functions, intrinsics, module.constants)
    memory = _memory(module)
    arguments = {param.name: memory[param.name] for param in main.params}
    late = module.results.pipelined_runs
    outputs: list[dict[str, Array]] = []
    for sample in until_late_outputs(samples, late):
        for tensor in module.io.inputs:
            _view(module, memory, tensor)[...] = sample[tensor.name]
        interpreter.run(main.name, arguments)
        found: dict[str, Array] = {}
        for tensor in module.io.outputs:
            found[tensor.name] = _view(module, memory, tensor).copy()
        outputs.append(found)
    return ReferenceOutputs(INTERPRETER_REFERENCE, tuple(outputs[late:]))


def _memory(module: IRModule) -> dict[str, Array]:
    """Return pools, and tensors outside them, by name; states have initial values."""
    pools = module.plan.pool_bytes if module.plan is not None else {}
    memory: dict[str, Array] = {}
    for name, size in pools.items():
        memory[name] = np.zeros(size, np.uint8)
    for tensor in (*module.io.inputs, *module.io.outputs):
        if module.plan is None or tensor.buffer not in module.plan.placements:
            memory[tensor.buffer] = np.zeros(tensor.type.shape, tensor.type.dtype.np)
    for state in module.io.state:
        _view(module, memory, state)[...] = module.constants[state.initial].array()
    return memory


def _view(module: IRModule, memory: Mapping[str, Array], tensor: IoTensor) -> Array:
    """Return the array of a tensor, which may be a part of a pool."""
    if tensor.buffer in memory:
        return memory[tensor.buffer]
    place = module.memory_plan.placements[tensor.buffer]
    data = memory[place.pool][place.offset : place.offset + tensor.type.size_bytes]
    return data.view(tensor.type.dtype.np).reshape(tensor.type.shape)
