"""Files that the reference runtimes run despite odd content: our results are equal."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import flatbuffers
import numpy as np
import pytest

from firmwright.base.errors import (
    FirmwrightError,
    ModelError,
    UnsupportedError,
    UsageError,
)
from firmwright.conformance.case_tables import conformance_cases
from firmwright.frontends.tflite import preprocess_tflite
from firmwright.ir.graph.evaluate import evaluate_graph
from firmwright.ir.graph.nodes import Function
from firmwright.ops.registry import op_table
from firmwright.pipeline import load_module_bytes
from tests.ops.tflite_writer import write_cases

schema = pytest.importorskip("ai_edge_litert.schema_py_generated")
interpreters = pytest.importorskip("ai_edge_litert.interpreter")
Model = Any


@cache
def _convolution() -> bytes:
    """Return an int8 convolution with a bias and a scale for each channel."""
    return next(
        data
        for case in conformance_cases("conv2d")
        if case.builtin and len(case.inputs) == 3
        for data in [write_cases([case])]
        if _scale_count(data) > 1
    )


def _scale_count(data: bytes) -> int:
    tensors = (
        schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(data, 0))
        .subgraphs[0]
        .tensors
    )
    scales = tensors[1].quantization and tensors[1].quantization.scale
    return 0 if scales is None or tensors[1].type != 9 else len(scales)


def _changed(change: Callable[[Model], object]) -> bytes:
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(_convolution(), 0))
    for tensor in model.subgraphs[0].tensors:
        quantization = tensor.quantization
        quantization.scale = [float(value) for value in quantization.scale]
        quantization.zeroPoint = [int(value) for value in quantization.zeroPoint]
    change(model)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _quantization(model: Model, tensor: int) -> Any:
    return model.subgraphs[0].tensors[tensor].quantization


def _graph(model: Model, **fields: object) -> None:
    vars(model.subgraphs[0]).update(fields)


def _tensor(model: Model, index: int, **fields: object) -> None:
    vars(model.subgraphs[0].tensors[index]).update(fields)


def _unused(model: Model, **fields: object) -> None:
    tensor = copy.deepcopy(model.subgraphs[0].tensors[0])
    vars(tensor).update(name=b"unused", **fields)
    model.subgraphs[0].tensors.append(tensor)


def _without_names(model: Model) -> None:
    _graph(model, name=None)
    for index in range(len(model.subgraphs[0].tensors)):
        _tensor(model, index, name=None)


def _signature(model: Model, subgraph: int, tensor: int) -> None:
    entry, signature = schema.TensorMapT(), schema.SignatureDefT()
    entry.name, entry.tensorIndex = b"x", tensor
    signature.signatureKey, signature.subgraphIndex = b"run", subgraph
    signature.inputs, signature.outputs = [entry], []
    model.signatureDefs = [signature]


def _metadata(model: Model) -> None:
    entry = schema.MetadataT()
    entry.name, entry.buffer = b"note", 99
    model.metadata = [entry]


def _activation(model: Model, code: int) -> None:
    model.subgraphs[0].operators[0].builtinOptions.fusedActivationFunction = code


def _empty_subgraph(model: Model) -> None:
    empty = schema.SubGraphT()
    empty.tensors, empty.inputs, empty.outputs, empty.operators = [], [], [], []
    model.subgraphs.append(empty)


ACCEPTED: dict[str, Callable[[Model], object]] = {
    "bias of another dimension": lambda m: vars(_quantization(m, 2)).update(
        quantizedDimension=3
    ),
    "input of another dimension": lambda m: vars(_quantization(m, 0)).update(
        quantizedDimension=7
    ),
    "weights with a scale of zero": lambda m: _quantization(m, 1).scale.__setitem__(
        1, 0.0
    ),
    "bias with a scale of zero": lambda m: _quantization(m, 2).scale.__setitem__(
        1, 0.0
    ),
    "bias with a negative scale": lambda m: _quantization(m, 2).scale.__setitem__(
        1, -1.0
    ),
    "bias with a scale of nan": lambda m: _quantization(m, 2).scale.__setitem__(
        1, float("nan")
    ),
    "bias with huge zero points": lambda m: _quantization(m, 2).zeroPoint.__setitem__(
        0, 1 << 40
    ),
    "unknown activation": lambda m: _activation(m, 77),
    "activation tanh": lambda m: _activation(m, 4),
    "no names": _without_names,
    "output twice": lambda m: _graph(m, outputs=[3, 3]),
    "output that is an input": lambda m: _graph(m, outputs=[0, 3]),
    "output that is a constant": lambda m: _graph(m, outputs=[3, 2]),
    "input twice": lambda m: _graph(m, inputs=[0, 0]),
    "input that is a constant": lambda m: _graph(m, inputs=[2, 0]),
    "input that is variable": lambda m: _tensor(m, 0, isVariable=True),
    "first buffer with data": lambda m: vars(m.buffers[0]).update(data=[1, 2, 3, 4]),
    "signature of another rank": lambda m: _tensor(m, 0, shapeSignature=[-1, -1]),
    "signature of no subgraph": lambda m: _signature(m, 7, 0),
    "signature of no tensor": lambda m: _signature(m, 0, 70),
    "metadata of no buffer": _metadata,
    "another shape of the result": lambda m: _tensor(m, 3, shape=[1]),
    "subgraph that is never run": _empty_subgraph,
    "intermediates of no tensor": lambda m: vars(m.subgraphs[0].operators[0]).update(
        intermediates=[99]
    ),
    "unused tensor of open shape": lambda m: _unused(m, shape=[-1, 2]),
    "unused tensor of huge shape": lambda m: _unused(m, shape=[1 << 30, 1 << 30]),
    "unused tensor of strings": lambda m: _unused(m, type=5),
    "unused tensor that is dynamic": lambda m: _unused(m, shapeSignature=[-1] * 4),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_litert_runs_has_litert_s_results(name: str) -> None:
    data = preprocess_tflite(_changed(ACCEPTED[name]), "t", {})
    interpreter = interpreters.Interpreter(
        model_content=data,
        experimental_op_resolver_type=interpreters.OpResolverType.BUILTIN_REF,
    )
    interpreter.allocate_tensors()
    module = load_module_bytes(data, "t.tflite")
    assert isinstance(module.entry, Function)
    (param,) = module.entry.params
    rng = np.random.Generator(np.random.PCG64(1))
    for _ in range(3):
        x = rng.integers(-128, 128, param.shape, np.int8)
        interpreter.set_tensor(0, x)
        interpreter.invoke()
        values = evaluate_graph(module, {param.name: x}, op_table(), {})
        details = interpreter.get_output_details()
        assert len({value.name for value in module.entry.results}) == len(details)
        for value, detail in zip(module.entry.results, details, strict=True):
            assert np.array_equal(
                values[value.name], interpreter.get_tensor(detail["index"])
            )


def test_a_zero_point_beyond_the_type_is_unsupported() -> None:
    data = _changed(lambda m: _quantization(m, 0).zeroPoint.__setitem__(0, 300))
    with pytest.raises(
        UnsupportedError, match="the zero point 300, outside of the range of int8"
    ):
        load_module_bytes(data, "t.tflite")


@pytest.mark.parametrize("tensor", [0, 1])
def test_a_negative_scale_of_int8_is_refused_as_by_litert(tensor: int) -> None:
    data = _changed(lambda m: _quantization(m, tensor).scale.__setitem__(0, -1.0))
    with pytest.raises(ModelError, match=r"-1\.0 is not a positive finite number"):
        load_module_bytes(data, "t.tflite")


def test_an_input_takes_a_given_shape_and_the_results_follow(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def open_all(model: Model) -> None:
        shape = list(model.subgraphs[0].tensors[0].shape)
        _tensor(model, 0, shapeSignature=[-1, -1, -1, shape[3]])

    data = _changed(open_all)
    channels = load_module_bytes(data, "t.tflite").entry.params[0].shape[3]  # type: ignore[union-attr]
    preprocess_tflite(data, "t", {})
    (message,) = caplog.messages
    assert message.startswith(
        f"input 0.x0: the open shape ?,?,?,{channels} is taken as "
    )
    given = preprocess_tflite(data, "t", {"0.x0": (2, 7, 9, channels)})
    interpreter = interpreters.Interpreter(
        model_content=given,
        experimental_op_resolver_type=interpreters.OpResolverType.BUILTIN_REF,
    )
    interpreter.allocate_tensors()
    module = load_module_bytes(given, "t.tflite")
    assert isinstance(module.entry, Function)
    x = np.random.Generator(np.random.PCG64(2)).integers(
        -128, 128, (2, 7, 9, channels), np.int8
    )
    interpreter.set_tensor(0, x)
    interpreter.invoke()
    (y,) = module.entry.results
    values = evaluate_graph(module, {module.entry.params[0].name: x}, op_table(), {})
    expected = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    assert np.array_equal(values[y.name], expected)
    with pytest.raises(UsageError, match="contradicts the model, where it is"):
        preprocess_tflite(data, "t", {"0.x0": (2, 7, 9, channels + 1)})
    with pytest.raises(UsageError, match="the model has no input 'x'"):
        preprocess_tflite(data, "t", {"x": (1,)})


def test_a_size_of_minus_one_becomes_one() -> None:
    data = _changed(
        lambda m: _tensor(m, 0, shape=[-1, *m.subgraphs[0].tensors[0].shape[1:]])
    )
    module = load_module_bytes(preprocess_tflite(data, "t", {}), "t.tflite")
    assert isinstance(module.entry, Function)
    assert module.entry.params[0].shape[0] == 1


def _custom(model: Model, name: bytes) -> None:
    code = model.operatorCodes[0]
    code.builtinCode = code.deprecatedBuiltinCode = 32
    code.customCode = name


def test_operators_of_tensorflow_come_first_with_the_remedy() -> None:
    with pytest.raises(
        UnsupportedError, match="convert the model without SELECT_TF_OPS"
    ) as caught:
        load_module_bytes(_changed(lambda m: _custom(m, b"FlexConv2D")), "t.tflite")
    assert [item.op for item in caught.value.items] == ["FLEX"]


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        (b"FlexIRFFT", "a product with a constant matrix can replace"),
        (b"AudioSpectrogram", "windows of 17 to 16,384 samples"),
        (b"Mfcc", "with a constant rate"),
    ],
)
def test_transforms_are_refused_with_the_remedy(name: bytes, remedy: str) -> None:
    with pytest.raises(UnsupportedError, match=remedy):
        load_module_bytes(_changed(lambda m: _custom(m, name)), "t.tflite")


def test_an_operator_of_vela_without_scratch_tensors_is_an_error() -> None:
    with pytest.raises(
        FirmwrightError, match="ethos-u lacks scratch tensors, or offsets"
    ):
        load_module_bytes(_changed(lambda m: _custom(m, b"ethos-u")), "t.tflite")
