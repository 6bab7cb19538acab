"""What the outputs must be: by the profile's oracle, or for want of a model file by ourselves.

In: a `Compiled` and samples. Out: outputs by the names of the module, and who says so. The model
file's runtime judges wherever the file is known. A graph written by hand is judged by the numpy
references of its operators; a module that was saved after lowering, by the interpreter of its TIR.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from firmwright.base.errors import InternalError, ToolFailedError
from firmwright.flows.inputs import Array, Tensors
from firmwright.frontends.onnx import is_onnx
from firmwright.ir.graph.evaluate import evaluate, initial_state, state_after
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IoTensor, IRModule
from firmwright.ir.tir.interp import Interpreter
from firmwright.ir.tir.nodes import PrimFunc
from firmwright.ops.registry import op_table
from firmwright.oracle.compare import compare
from firmwright.oracle.run import ORACLE_NAMES, Numerics, OracleResult, Runtime, run_oracle
from firmwright.partitioning.libraries import intrinsics_of
from firmwright.pipeline import Compiled
from firmwright.schedules.registry import INTRINSICS

log = logging.getLogger(__name__)
BY_NUMPY = "firmwright numpy references"
BY_INTERPRETER = "firmwright TIR interpreter"
LARGEST_NOISE = 1e-2
"""Of the energy of the results: what roundings of quantised layers stay well below."""


@dataclass(frozen=True, slots=True)
class Reference:
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


def reference_for(
    compiled: Compiled, samples: Sequence[Tensors], *, layers: bool = False
) -> Reference:
    """The expected outputs of `samples`. Raises ToolMissingError, ToolFailedError."""
    if compiled.source is not None and not has_custom(compiled.imported):
        found = by_oracle(compiled, samples, runtime_for(compiled), layers=layers)
        return (
            beside_onnx_runtime(compiled, samples, found) if is_quantised_onnx(compiled) else found
        )
    if isinstance(compiled.imported.entry, Function):
        return by_numpy(compiled.imported, samples)
    return by_interpreter(compiled.module, samples)


def has_custom(module: IRModule) -> bool:
    """Whether the model has operators that no runtime knows: only the user says their meaning."""
    graphs = [func for func in module.functions.values() if isinstance(func, Function)]
    return any(call.op == "custom" for func in graphs for call in func.body)


def is_quantised_onnx(compiled: Compiled) -> bool:
    """Whether the model is one of ONNX that has integers, which may be rounded to either side."""
    entry = compiled.imported.entry
    if runtime_for(compiled) != "onnxruntime" or not isinstance(entry, Function):
        return False
    return any(value.type.quantization for call in entry.body for value in call.outputs)


def beside_onnx_runtime(
    compiled: Compiled, samples: Sequence[Tensors], theirs: Reference
) -> Reference:
    """Our references' results, bit for bit, where ONNX Runtime's are those but for roundings.

    A step in a layer may be several further on, so the whole model is judged by how far the
    results stand above the differences; where that is not far, ONNX Runtime's results count.
    """
    ours = by_numpy(compiled.imported, samples)
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
    return bool(noise <= LARGEST_NOISE * signal)


def runtime_for(compiled: Compiled) -> Runtime:
    """Whose results count for the compiled model file."""
    if compiled.source is not None and is_onnx(compiled.source, ""):
        return "onnxruntime"
    return numerics_of(compiled.module)


def by_oracle(
    compiled: Compiled, samples: Sequence[Tensors], runtime: Runtime, *, layers: bool = False
) -> Reference:
    """By one of the runtimes that run model files."""
    if compiled.source is None:
        raise InternalError("there is no model file for the oracle to run.")
    log.info("asking %s", ORACLE_NAMES[runtime])
    subgraph = int(str(compiled.module.attrs.get("subgraph", 0)))
    found = run_oracle(compiled.source, samples, runtime, layers=layers, subgraph=subgraph)
    outputs = compiled.module.io.outputs
    return Reference(
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


def _named_layers(found: OracleResult) -> tuple[Tensors, ...]:
    names = list(found.layer_names.values())
    unique = {index: name for index, name in found.layer_names.items() if names.count(name) == 1}
    return tuple({name: layers[index] for index, name in unique.items()} for layers in found.layers)


def by_numpy(module: IRModule, samples: Sequence[Tensors]) -> Reference:
    """By the operators' own references, or the interpreter for calls of PrimFuncs."""
    entry = module.entry
    if not isinstance(entry, Function):
        raise InternalError("only a graph can be evaluated by reference")
    log.info("computing the reference with numpy")
    values, kept = [], initial_state(module)
    for sample in samples:
        values.append(evaluate(module, sample, op_table(), intrinsics_of(module, INTRINSICS), kept))
        kept = state_after(module, values[-1])
    results = [value.name for value in entry.results]
    outputs = tuple({name: found[name] for name in results} for found in values)
    return Reference(BY_NUMPY, outputs, tuple(values))


def by_interpreter(module: IRModule, samples: Sequence[Tensors]) -> Reference:
    """By interpretation of a planned module's AOT main, in pools of its own."""
    main = module.entry
    if not isinstance(main, PrimFunc):
        raise InternalError("only an AOT main can be interpreted")
    log.info("interpreting the module")
    functions = {n: f for n, f in module.functions.items() if isinstance(f, PrimFunc)}
    interpreter = Interpreter(functions, intrinsics_of(module, INTRINSICS), module.constants)
    memory = _memory(module)
    outputs = tuple(_interpreted(module, main, interpreter, memory, s) for s in samples)
    return Reference(BY_INTERPRETER, outputs)


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
    main: PrimFunc,
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
