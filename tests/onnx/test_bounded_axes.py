"""Models with an axis of several sizes, each compared with ONNX Runtime at its size."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from firmwright.base.errors import (
    DeviceError,
    ModelError,
    UnsupportedError,
    UsageError,
)
from firmwright.cli.model_argument import fixed_shapes, model_overrides
from firmwright.cli.option_values import input_shape
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.board.model_session import ModelSession, open_session
from firmwright.flows.measure.build_report import build_report
from firmwright.flows.measure.instruction_counts import measure_instructions
from firmwright.flows.measure.time_bound import bound_time
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model, load_model
from firmwright.flows.predict.cost_prediction import kernel_costs
from firmwright.flows.samples.bounded_shapes import inputs_at, to_memory
from firmwright.flows.samples.sample_batches import generate_samples
from firmwright.flows.verify.access_checking import open_checked_session
from firmwright.flows.verify.verification import verify
from firmwright.frontends.onnx import BoundedShapes, ModelOverrides
from firmwright.frontends.tflite import open_inputs
from firmwright.ir import tir
from firmwright.ir.bounded_axis import BoundedAxis
from firmwright.ir.module import IRModule
from firmwright.ir.printer import parse_module, print_module
from firmwright.ir.tir.traversal import rewrite_func
from firmwright.ir.tir.verify import diagnose_prim_func, verify_module
from firmwright.ops.registry import op_table
from firmwright.pipeline import Compilation
from firmwright.report.html_page import render_page
from firmwright.schedules.registry import INTRINSICS
from tests.conftest import models_folder
from tests.onnx.onnx_models import Net, quantized_tensor

CORTEX_M4 = "cortex-m -mcpu=cortex-m4"
Shapes = Mapping[str, tuple[int | str, ...]]


def load(
    folder: Path, data: bytes, shapes: Shapes, axis: BoundedAxis, name: str = "net"
) -> Model:
    """Load a model; the axis is where its name is in the shapes."""
    path = folder / f"{name}.onnx"
    path.write_bytes(data)
    largest: dict[str, tuple[int, ...]] = {}
    places: dict[str, tuple[int, ...]] = {}
    for tensor, shape in shapes.items():
        largest[tensor] = tuple(n if isinstance(n, int) else axis.most for n in shape)
        places[tensor] = tuple(k for k, n in enumerate(shape) if n == axis.name)
    bounded = BoundedShapes(axis, places)
    return load_model(path, overrides=ModelOverrides(largest, bounded=bounded))


def dense_net() -> bytes:
    net = Net(2)
    x = net.input("x", (1, "time", 8))
    x = net.node("Add", net.node("MatMul", x, net.random(8, 6)), net.random(6))
    x = net.node("Relu", x)
    return net.model(net.node("Softmax", net.node("MatMul", x, net.random(6, 4))))


def conv_net() -> bytes:
    """Windows with padding, a pool that halves the axis, a mean over it."""
    net = Net(3)
    x = net.input("x", (1, 4, "time"))
    y = net.node("Relu", net.conv(x, 4, 6, (3,), pads=[1, 1]))
    pooled = net.node("MaxPool", y, kernel_shape=[2], strides=[2], pads=[0, 1])
    mean = net.node(
        "ReduceMean", net.node("Concat", y, x, axis=1), axes=[2], keepdims=0
    )
    scores = net.node("Gemm", mean, net.random(10, 3), net.random(3))
    return net.model(scores, pooled)


def decoder_net(width: int = 8, heads: int = 2) -> bytes:
    """A step of a decoder: attention over the keys and values of earlier steps."""
    net = Net(4)
    x = net.input("x", (1, width))
    keys = net.input("keys", ("context", width))
    values = net.input("values", ("context", width))
    split = net.weight(np.array([-1, heads, width // heads], np.int64))
    query, key, value = (net.node("MatMul", x, net.random(width, width)) for _ in "qkv")

    def by_head(tensor: str, *perm: int) -> Any:
        return net.node("Transpose", net.node("Reshape", tensor, split), perm=perm)

    keys = by_head(net.node("Concat", keys, key, axis=0), 1, 2, 0)
    values = by_head(net.node("Concat", values, value, axis=0), 1, 0, 2)
    scores = net.node("MatMul", by_head(query, 1, 0, 2), keys)
    weights = net.node("Softmax", net.node("Mul", scores, net.scalar(0.5)), axis=-1)
    mixed = net.node("Transpose", net.node("MatMul", weights, values), perm=(1, 0, 2))
    flat = net.node("Reshape", mixed, net.weight(np.array([1, width], np.int64)))
    return net.model(net.node("MatMul", flat, net.random(width, width)), key, value)


NETS: Mapping[str, tuple[bytes, Shapes, str]] = {
    "dense": (dense_net(), {"x": (1, "time", 8)}, "time"),
    "conv": (conv_net(), {"x": (1, 4, "time")}, "time"),
    "decoder": (
        decoder_net(),
        {"x": (1, 8), "keys": ("context", 8), "values": ("context", 8)},
        "context",
    ),
}


STAGES: dict[str, IRModule] = {}
"""The dense network after each pass."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Return the dense network with an axis of four sizes."""
    folder = tmp_path_factory.mktemp("dense")
    return load(folder, dense_net(), {"x": (1, "time", 8)}, BoundedAxis("time", 1, 4))


@pytest.fixture(scope="module")
def dense(model: Model) -> Compilation:
    return compile_for(model, target=CORTEX_M4, watch=STAGES.__setitem__)


@pytest.fixture(scope="module")
def session(dense: Compilation) -> Iterator[ModelSession]:
    with open_session(dense) as opened:
        yield opened


@pytest.mark.parametrize("name", NETS)
def test_every_size_equals_onnx_runtime_and_uses_the_memory_of_its_size(
    name: str, tmp_path: Path, dense: Compilation
) -> None:
    compiled = dense
    if name != "dense":
        data, shapes, axis = NETS[name]
        model = load(tmp_path, data, shapes, BoundedAxis(axis, 1, 3), name)
        compiled = compile_for(model, target=CORTEX_M4)
    assert compiled.module.settings.axis is not None
    sizes = compiled.module.settings.axis.sizes
    result = verify(compiled, samples=len(sizes), open_with=open_checked_session)
    assert result.samples == len(sizes)
    assert result.exact


def test_the_output_of_a_size_has_its_shape(session: ModelSession) -> None:
    for size in (1, 3, 4):
        outputs = session.run({"x": np.ones((1, size, 8), np.float32)})
        assert isinstance(outputs, dict)
        (name, count) = outputs
        assert outputs[name].shape == (1, size, 4)
        assert int(outputs[count]) == size
    with pytest.raises(UsageError, match=r"shapes of no size of time 1\.\.4"):
        session.run({"x": np.ones((1, 10, 8), np.float32)})


def test_a_run_refuses_a_size_out_of_bounds(
    dense: Compilation, session: ModelSession
) -> None:
    header = dense.tree.encoded()["model/net.h"].decode()
    assert "#define NET_E_AXIS (-12)" in header
    assert "#define NET_TIME_LEAST 1\n#define NET_TIME_MOST 4" in header
    sample = generate_samples(inputs_at(dense, 4), 1).samples[0]
    for size in (0, -1, 5):
        arrays = {**to_memory(sample, dense), "time": np.array(size, np.int32)}
        with pytest.raises(DeviceError, match="-12"):
            session.device.run(arrays)


def test_the_text_of_the_lowered_module_compiles_to_the_same_c(
    dense: Compilation,
) -> None:
    again = compile_for(parse_module(print_module(STAGES["lower-select"]), "net.fwir"))
    assert again.tree.encoded()["model/net.c"] == dense.tree.encoded()["model/net.c"]
    before = print_module(STAGES["cse"])
    with pytest.raises(UsageError, match=r"one size of the axis time 1\.\.4"):
        compile_for(parse_module(before, "net.fwir"))


def test_the_verifier_checks_the_kernel_of_every_size(dense: Compilation) -> None:
    module = dense.module
    verify_module(module, op_table(), INTRINSICS)
    axis = module.settings.axis
    assert axis is not None
    kernel = next(
        function
        for function in module.functions.values()
        if isinstance(function, tir.PrimFunc) and "softmax" in function.name
    )

    def one_more(node: Any) -> Any:
        if isinstance(node, tir.Var) and node == axis.variable:
            return tir.Binary("add", node, tir.IntImm(1, node.dtype))
        return None

    broken = rewrite_func(kernel, one_more)
    assert diagnose_prim_func(broken, module.with_function(broken), INTRINSICS)
    longer = replace(module.settings, axis=BoundedAxis("time", 1, 5))
    assert diagnose_prim_func(kernel, replace(module, settings=longer), INTRINSICS)


def test_the_size_of_a_main_is_the_input_of_the_axis(dense: Compilation) -> None:
    module = dense.module

    def other_value(node: Any) -> Any:
        if isinstance(node, tir.Let):
            return replace(node, value=tir.IntImm(900, node.var.dtype))
        return None

    main = rewrite_func(module.aot_main, other_value)
    with pytest.raises(ModelError, match="n_time is not the input time"):
        verify_module(module.with_function(main), op_table(), INTRINSICS)


def test_an_operator_without_a_kernel_for_all_sizes_is_refused(tmp_path: Path) -> None:
    net = Net(5)
    x = net.input("x", ("time", 4))
    data = net.model(net.node("ReduceProd", net.node("Softmax", x, axis=0), keepdims=0))
    model = load(tmp_path, data, {"x": ("time", 4)}, BoundedAxis("time", 2, 5))
    compile_for(model)
    net = Net(5)
    x = net.input("x", ("time", "time"))
    data = net.model(net.node("Det", x))
    model = load(tmp_path, data, {"x": ("time", "time")}, BoundedAxis("time", 2, 5))
    with pytest.raises((UnsupportedError, UsageError), match="time 2"):
        compile_for(model)


def test_options_that_need_fixed_shapes_are_refused(model: Model) -> None:
    with pytest.raises(UsageError, match="--recompute needs fixed shapes"):
        compile_for(model, recompute=True)


def test_an_axis_has_a_name_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has a tensor 'x' already"):
        load(tmp_path, dense_net(), {"x": (1, "x", 8)}, BoundedAxis("x", 1, 4))


def test_a_size_on_the_command_line_may_be_a_range() -> None:
    axis = BoundedAxis("time", 1, 128)
    assert input_shape("x=1,time:1..128,16") == ("x", (1, axis, 16))
    assert input_shape("x=2..4") == ("x", (BoundedAxis("size", 2, 4),))


@pytest.mark.parametrize(
    "sizes", ["0..4", "4..4", "5..4", "1..1025", "a b:1..4", "t:4", "1..", ""]
)
def test_other_ranges_are_refused(sizes: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"LEAST\.\.MOST"):
        input_shape(f"x=1,{sizes},16")


def test_a_model_has_one_axis() -> None:
    given = [input_shape("a=n:1..4"), input_shape("b=m:1..5,n:1..4")]
    args = argparse.Namespace(input_shape=given[:1], fix_input=())
    assert model_overrides(args).shapes == {"a": (4,)}
    args.input_shape = given
    with pytest.raises(UsageError, match=r"not m 1\.\.5 and n 1\.\.4"):
        model_overrides(args)
    with pytest.raises(UsageError, match="quantize needs fixed shapes"):
        fixed_shapes(
            argparse.Namespace(input_shape=given[:1], fix_input=()), "quantize"
        )


def test_stages_and_predictions_are_of_the_largest_size(dense: Compilation) -> None:
    module = STAGES["usmp"]
    assert module.settings == dense.module.settings
    assert [tensor.name for tensor in module.io.inputs] == ["x", "time"]
    times: list[int] = []
    for most in (3, 30):
        longer = replace(module.settings, axis=BoundedAxis("time", 1, most))
        costs = kernel_costs(replace(module, settings=longer))
        times.append(sum(cost.instructions for cost in costs.values()))
    assert 5 * times[0] < times[1] < 10 * times[0]


@pytest.mark.parametrize(
    "bounds", ["0, 4", "4, 4", "1, 1025", "1, 9223372036854775807"]
)
def test_other_ranges_of_a_module_are_refused(bounds: str) -> None:
    text = f'firmwright ir 2\nmodule @m\nattrs {{axis=["time", {bounds}]}}\n'
    with pytest.raises(ModelError, match="axis"):
        parse_module(text)


@pytest.mark.deep
@pytest.mark.models
@pytest.mark.host_c
@pytest.mark.parametrize("name", ["ad01_int8", "kws_ref_model"])
def test_open_sizes_of_a_tflite_model_equal_litert_after_its_own_resizing(
    name: str,
) -> None:
    """LiteRT reads the file of the user, not the one in which a size is set."""
    path = models_folder() / f"{name}.tflite"
    (given,) = open_inputs(path.read_bytes(), path.name).items()
    tensor, (_, *rest) = given
    bounded = BoundedShapes(BoundedAxis("batch", 1, 6), {tensor: (0,)})
    overrides = ModelOverrides({tensor: (6, *map(int, rest))}, bounded=bounded)
    compiled = compile_for(load_model(path, overrides=overrides))
    own = Interpreter(
        str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_REF
    )
    (place,) = (item["index"] for item in own.get_input_details())
    with open_session(compiled, in_process=True) as session:
        for size in range(1, 7):
            x = generate_samples(inputs_at(compiled, size), 4).samples[3][tensor]
            own.resize_tensor_input(place, x.shape, strict=True)
            own.allocate_tensors()
            own.set_tensor(place, x)
            own.invoke()
            expected = own.get_tensor(own.get_output_details()[0]["index"])
            outputs = session.run({tensor: x})
            assert isinstance(outputs, dict)
            np.testing.assert_array_equal(next(iter(outputs.values())), expected)


@pytest.mark.deep
@pytest.mark.qemu
def test_a_step_of_a_decoder_costs_in_proportion_to_its_context(
    tmp_path: Path,
) -> None:
    shapes: Shapes = {"x": (1, 32), "keys": ("context", 32), "values": ("context", 32)}
    data, axis = decoder_net(32, 4), BoundedAxis("context", 1, 128)
    compiled = compile_for(load(tmp_path, data, shapes, axis), "mps2-an386")
    image = build_image(compiled)
    costs: dict[int, int] = {}
    for size in (1, 16, 64, 112, 128):
        sample = generate_samples(inputs_at(compiled, size), 4).samples[3]
        sample = {**sample, "context": np.array(size, np.int32)}
        counts = measure_instructions(
            compiled, image=image, sample=to_memory(sample, compiled)
        )
        costs[size] = counts.total.instructions
    step = (costs[64] - costs[16]) / 48
    # Some kernels are faster for the largest size.
    assert 0.97 < costs.pop(128) / (costs[64] + 64 * step) <= 1
    for size, cost in costs.items():
        assert abs(costs[64] + (size - 64) * step - cost) < 0.02 * cost, costs


@pytest.mark.parametrize(
    ("op", "attrs", "operator"),
    [
        ("ReduceMean", {"axes": [1], "keepdims": 0}, "mean"),
        pytest.param("Softmax", {"axis": 1}, "softmax", marks=pytest.mark.deep),
    ],
)
def test_quantized_operators_along_the_axis_are_refused_by_name(
    op: str, attrs: dict[str, Any], operator: str, tmp_path: Path
) -> None:
    """Few sizes have a kernel each; a number of any two sizes is never a formula."""
    net = Net(6)
    x = quantized_tensor(net, net.input("x", (1, "time", 4)), 0.05, False)
    y = quantized_tensor(net, net.node(op, x, **attrs), 0.01, False)
    data, shapes = net.model(y), {"x": (1, "time", 4)}
    few = compile_for(load(tmp_path, data, shapes, BoundedAxis("time", 2, 4)))
    assert verify(
        few, samples=3, open_with=partial(open_session, in_process=True)
    ).exact
    with pytest.raises(UnsupportedError, match=f"{operator}.*no kernel for all sizes"):
        compile_for(load(tmp_path, data, shapes, BoundedAxis("time", 2, 10)))


@pytest.mark.qemu
def test_figures_of_a_firmware_are_of_the_largest_size_and_its_bound_of_all(
    model: Model,
) -> None:
    compiled = compile_for(model, "mps2-an386")
    image = build_image(compiled)
    report = build_report(compiled, count_instructions=True, tradeoffs=False)
    assert "the largest size of time 1..4" in render_page(report)
    bound = bound_time(compiled, image=image).instructions
    # The board counts in steps of the resolution.
    assert report.total - report.resolution < bound < 1.2 * report.total
