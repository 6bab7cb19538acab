"""What the outputs must be: by the profile's oracle, or for want of a model file by ourselves.

In: a `Compilation` and samples. Out: outputs by the names of the module, and who says so. The model
file's runtime judges wherever the file is known. A graph written by hand is judged by the numpy
references of its operators; a module that was saved after lowering, by the interpreter of its TIR.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from firmwright.base.errors import InternalError, ToolFailedError
from firmwright.flows.sample_batches import Array, Tensors
from firmwright.frontends.onnx import is_onnx
from firmwright.ir import tir
from firmwright.ir.graph.evaluate import evaluate_graph, initial_state, next_state
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IoTensor, IRModule
from firmwright.ir.tir.interpreter import Interpreter
from firmwright.ops.registry import op_table
from firmwright.oracle.compare import compare
from firmwright.oracle.reference_runner import (
    RUNTIME_TITLES,
    Numerics,
    ReferenceResult,
    RuntimeName,
    run_reference,
)
from firmwright.partitioning.backend_libraries import collect_intrinsics
from firmwright.pipeline import Compilation
from firmwright.schedules.registry import INTRINSICS

log = logging.getLogger(__name__)
NUMPY_REFERENCE = "firmwright numpy references"
INTERPRETER_REFERENCE = "firmwright TIR interpreter"
MAX_RELATIVE_ROUNDING = 1e-2
"""Of the energy of the results: what roundings of quantised layers stay well below."""


@dataclass(frozen=True, slots=True)
class ReferenceOutputs:
    """Expected outputs by sample; `layers` holds what is known of the values in between.

    `layers` is a sample's values by the name of their tensor; names that are not unique in the
    model are left out. `note` says what else there is to know of it.
    """

    name: str
    outputs: tuple[Tensors, ...]
    layers: tuple[Tensors, ...] = field(default=())
    note: str = ""


def numerics_of(module: IRModule) -> Numerics:
    """The module's profile."""
    return "tflm" if module.attrs.get("numerics") == "tflm" else "litert"


def compute_reference(
    compiled: Compilation, samples: Sequence[Tensors], *, layers: bool = False
) -> ReferenceOutputs:
    """The expected outputs of `samples`. Raises ToolMissingError, ToolFailedError."""
    if compiled.source is not None and not has_custom_operators(compiled.imported):
        found = run_oracle_reference(compiled, samples, reference_runtime(compiled), layers=layers)
        return (
            check_against_onnx_runtime(compiled, samples, found)
            if is_quantized_onnx(compiled)
            else found
        )
    if isinstance(compiled.imported.entry, Function):
        return run_numpy_reference(compiled.imported, samples)
    return run_interpreter(compiled.module, samples)


def has_custom_operators(module: IRModule) -> bool:
    """Whether the model has operators that no runtime knows: only the user says their meaning."""
    graphs = [func for func in module.functions.values() if isinstance(func, Function)]
    return any(call.op == "custom" for func in graphs for call in func.body)


def is_quantized_onnx(compiled: Compilation) -> bool:
    """Whether the model is one of ONNX that has integers, which may be rounded to either side."""
    entry = compiled.imported.entry
    if reference_runtime(compiled) != "onnxruntime" or not isinstance(entry, Function):
        return False
    return any(value.type.quantization for call in entry.body for value in call.outputs)


def check_against_onnx_runtime(
    compiled: Compilation, samples: Sequence[Tensors], theirs: ReferenceOutputs
) -> ReferenceOutputs:
    """Our references' results, bit for bit, where ONNX Runtime's are those but for roundings.

    A step in a layer may be several further on, so the whole model is judged by how far the
    results stand above the differences; where that is not far, ONNX Runtime's results count.
    """
    ours = run_numpy_reference(compiled.imported, samples)
    found = compare(theirs.outputs, ours.outputs)
    if not found.mismatches or not _alike(theirs.outputs, ours.outputs):
        return theirs
    note = (
        f"{theirs.name} rounds to the other side in places: {found.mismatches:,} of "
        f"{found.values:,} values differ from that, by at most {found.max_abs_error:.3g}."
    )
    return replace(ours, note=note)


def _alike(theirs: Sequence[Tensors], ours: Sequence[Tensors]) -> bool:
    signal = noise = 0.0
    for wanted, got in zip(theirs, ours, strict=True):
        for name, values in wanted.items():
            real = values.astype(np.float64)
            signal += float(np.square(real).sum())
            noise += float(np.square(got[name].astype(np.float64) - real).sum())
    return bool(noise <= MAX_RELATIVE_ROUNDING * signal)


def reference_runtime(compiled: Compilation) -> RuntimeName:
    """Whose results count for the compiled model file."""
    if compiled.source is not None and is_onnx(compiled.source, ""):
        return "onnxruntime"
    return numerics_of(compiled.module)


def run_oracle_reference(
    compiled: Compilation, samples: Sequence[Tensors], runtime: RuntimeName, *, layers: bool = False
) -> ReferenceOutputs:
    """By one of the runtimes that run model files."""
    if compiled.source is None:
        raise InternalError("there is no model file for the oracle to run.")
    log.info("asking %s", RUNTIME_TITLES[runtime])
    subgraph = int(str(compiled.module.attrs.get("subgraph", 0)))
    found = run_reference(compiled.source, samples, runtime, layers=layers, subgraph=subgraph)
    outputs = compiled.module.io.outputs
    return ReferenceOutputs(
        f"{found.name} {found.version}",
        tuple(_in_our_names(given, outputs) for given in found.outputs),
        _named_layers(found),
    )


def _in_our_names(given: Tensors, outputs: Sequence[IoTensor]) -> dict[str, Array]:
    """By position: the oracle knows tensors by the file's names, which need not be ours."""
    if len(given) != len(outputs):
        raise ToolFailedError(
            f"the reference gives {len(given)} outputs by name, the model has {len(outputs)}."
        )
    return {tensor.name: value for tensor, value in zip(outputs, given.values(), strict=True)}


def _named_layers(found: ReferenceResult) -> tuple[Tensors, ...]:
    names = list(found.layer_names.values())
    unique = {index: name for index, name in found.layer_names.items() if names.count(name) == 1}
    return tuple({name: layers[index] for index, name in unique.items()} for layers in found.layers)


def run_numpy_reference(module: IRModule, samples: Sequence[Tensors]) -> ReferenceOutputs:
    """By the operators' own references, or the interpreter for calls of PrimFuncs."""
    entry = module.entry
    if not isinstance(entry, Function):
        raise InternalError("only a graph can be evaluated by reference")
    log.info("computing the reference with numpy")
    values, kept = [], initial_state(module)
    for sample in samples:
        values.append(
            evaluate_graph(module, sample, op_table(), collect_intrinsics(module, INTRINSICS), kept)
        )
        kept = next_state(module, values[-1])
    results = [value.name for value in entry.results]
    outputs = tuple({name: found[name] for name in results} for found in values)
    return ReferenceOutputs(NUMPY_REFERENCE, outputs, tuple(values))


def run_interpreter(module: IRModule, samples: Sequence[Tensors]) -> ReferenceOutputs:
    """By interpretation of a planned module's AOT main, in pools of its own."""
    main = module.entry
    if not isinstance(main, tir.PrimFunc):
        raise InternalError("only an AOT main can be interpreted")
    log.info("interpreting the module")
    functions = {n: f for n, f in module.functions.items() if isinstance(f, tir.PrimFunc)}
    interpreter = Interpreter(functions, collect_intrinsics(module, INTRINSICS), module.constants)
    memory = _memory(module)
    outputs = tuple(_interpreted(module, main, interpreter, memory, s) for s in samples)
    return ReferenceOutputs(INTERPRETER_REFERENCE, outputs)


def _memory(module: IRModule) -> dict[str, Array]:
    """Pools and tensors outside of them, the state at its first values."""
    pools = module.plan.pool_bytes if module.plan is not None else {}
    memory: dict[str, Array] = {name: np.zeros(size, np.uint8) for name, size in pools.items()}
    for tensor in (*module.io.inputs, *module.io.outputs):
        if module.plan is None or tensor.buffer not in module.plan.placements:
            memory[tensor.buffer] = np.zeros(tensor.type.shape, tensor.type.dtype.np)
    for state in module.io.state:
        _view(module, memory, state)[...] = module.constants[state.initial].array()
    return memory


def _interpreted(
    module: IRModule,
    main: tir.PrimFunc,
    interpreter: Interpreter,
    memory: Mapping[str, Array],
    sample: Tensors,
) -> dict[str, Array]:
    for tensor in module.io.inputs:
        _view(module, memory, tensor)[...] = sample[tensor.name]
    interpreter.run(main.name, {param.name: memory[param.name] for param in main.params})
    return {t.name: _view(module, memory, t).copy() for t in module.io.outputs}


def _view(module: IRModule, memory: Mapping[str, Array], tensor: IoTensor) -> Array:
    """The tensor's array: the caller's own, or a window of its pool."""
    if tensor.buffer in memory:
        return memory[tensor.buffer]
    assert module.plan is not None
    place = module.plan.placements[tensor.buffer]
    window = memory[place.pool][place.offset : place.offset + tensor.type.size_bytes]
    return window.view(tensor.type.dtype.np).reshape(tensor.type.shape)
