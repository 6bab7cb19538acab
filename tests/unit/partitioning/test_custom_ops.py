"""Custom operators: registered, imported, compiled with their C, and verified."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from firmwright.base.errors import UnsupportedError, UsageError
from firmwright.cli.main import main
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model, partition, save_module
from firmwright.flows.model.model_inspection import inspect_model
from firmwright.ir.graph.attributes.control import CustomAttrs
from firmwright.ir.graph.nodes import Function
from firmwright.ir.graph.patterns import custom_op, wildcard
from firmwright.ops.custom import CUSTOM_OPS, CustomOp, custom_options_of
from firmwright.partitioning.custom_ops import load_custom_ops
from firmwright.targets.backend_registry import BACKENDS
from onnx import TensorProto, helper
from tests.backends.toy_backends import Toy
from tests.onnx.onnx_models import Net
from tests.state.model_writer import ModelFile

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "reference" / "custom-operators.md"

pytestmark = pytest.mark.usefixtures("no_backends")


@pytest.fixture(autouse=True)
def _no_claims() -> None:
    """Remove the operators that a test registers."""
    CUSTOM_OPS._ops.clear()


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """The file of docs/reference/custom-operators.md."""
    (text,) = re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    path = tmp_path / "pair_max.py"
    path.write_text(text)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a model of a relu, two PairMax, and a relu."""
    file = ModelFile()
    graph = file.graph("main")
    kind = ("int8", (1, 16), 0.5, -3)
    x, a = graph.input("x", *kind), graph.tensor("a", *kind)
    b, c = (
        graph.tensor(n, "int8", (1, size), 0.5, -3) for n, size in (("b", 8), ("c", 4))
    )
    y = graph.tensor("y", "int8", (1, 4), 0.5, -3)
    graph.op("RELU", [x], [a])
    graph.op("custom:PairMax", [a], [b], speed=3)
    graph.op("custom:PairMax", [b], [c])
    graph.op("RELU", [c], [y])
    graph.outputs(y)
    path = tmp_path / "pairs.tflite"
    path.write_bytes(file.data())
    return path


def test_unregistered_operator_is_unsupported(model: Path):
    with pytest.raises(UnsupportedError) as error:
        load_model(model)
    assert [(i.op, i.why) for i in error.value.items] == [
        ("custom:PairMax", "this operator is not supported")
    ] * 2
    assert len(inspect_model(model).unsupported) == 2


def test_registered_operator_keeps_its_name_and_attributes(model: Path, ours: Path):
    load_custom_ops(ours)
    entry = load_model(model).module.entry
    assert isinstance(entry, Function)
    first, second = (call for call in entry.body if call.op == "custom")
    one, other = (call.attributes(CustomAttrs) for call in (first, second))
    assert (one.domain, one.name) == ("", "PairMax")
    assert b"speed" in bytes.fromhex(one.data)
    assert one.data != other.data


def test_c_of_a_custom_operator_is_part_of_the_project(
    model: Path, ours: Path, tmp_path: Path
):
    load_custom_ops(ours)
    straight = compile_for(load_model(model), board="mps2-an386")
    assert "backend/custom/pair_max.c" in straight.tree.files
    text = straight.tree.files["model/pairs.c"]
    assert "void pair_max(const int8_t *p0, int8_t *p1, int32_t n2);" in text
    assert "pair_max(x, y, 8);" in text
    save_module(
        partition(load_model(model), "cortex-m -mcpu=cortex-m4").module,
        tmp_path / "p.fwir",
    )
    CUSTOM_OPS._ops.clear()
    assert compile_for(
        load_model(tmp_path / "p.fwir", trust=True), board="mps2-an386"
    ).tree.files == (straight.tree.files)


@pytest.mark.qemu
def test_custom_operator_is_verified_in_qemu(
    model: Path, ours: Path, capfd: pytest.CaptureFixture[str]
):
    words = [
        "verify",
        str(model),
        "--board",
        "mps2-an386",
        "--custom-op",
        str(ours),
        "--json",
    ]
    assert main([*words, "--samples", "4"]) == 0
    result = json.loads(capfd.readouterr().out)
    assert (result["mismatches"], result["reference"]) == (
        0,
        "firmwright numpy references",
    )


def test_a_node_of_a_foreign_domain_gets_its_types_from_the_rule(tmp_path: Path):
    def infer(call):
        options = json.loads(custom_options_of(call))
        kind = call.input(0)
        return (type(kind)((1, kind.shape[1] // options["step"]), kind.dtype),)

    net = Net()
    x = net.input("x", (1, 8))
    y = net.node("Pick", x, domain="acme", step=2)
    model = helper.make_model(
        helper.make_graph(
            net.nodes,
            "n",
            net.inputs,
            [helper.make_tensor_value_info(y, TensorProto.FLOAT, None)],
        ),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)],
    )
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(UnsupportedError, match="Pick at"):
        load_model(path)
    CUSTOM_OPS.register(
        CustomOp(
            "Pick",
            "pick",
            {"pick.c": "/* not compiled here */"},
            lambda call, arrays: (arrays[0][:, ::2],),
            infer,
            lambda call: [call.output.elements],
            domain="acme",
        )
    )
    compiled = compile_for(load_model(path))
    assert "pick(x, y, 4);" in compiled.tree.files["model/net.c"]


SAMPLED = '''
from firmwright.ops.custom import CustomOp

WARP = """
void warp(const float *x, const float *regions, float *y)
{
    for (int i = 0; i < 4; ++i) {
        y[i] = x[3 - i] + 0.0f * regions[i];
    }
}
"""

CUSTOM_OPS = [
    CustomOp(
        name="MaxRoiPool",
        function="warp",
        sources={"warp.c": WARP},
        reference=lambda call, arrays: (arrays[0][:, :, ::-1, ::-1],),
        infer=lambda call: (call.input(0),),
    )
]
'''


def test_an_operator_of_onnx_itself_can_be_a_custom_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    net = Net()
    x = net.input("x", (1, 1, 2, 2))
    regions = net.input("regions", (1, 5))
    y = net.node("MaxRoiPool", x, regions, pooled_shape=[2, 2])
    net.nodes[-1].name = "warp"
    (tmp_path / "net.onnx").write_bytes(net.model(net.node("Relu", y)))
    (tmp_path / "warp.py").write_text(SAMPLED)
    words = ["verify", str(tmp_path / "net.onnx"), "--samples", "3"]
    assert main(words) == 2
    said = " ".join(capfd.readouterr().err.split())
    assert (
        'node 0 (maxroipool0_0) "warp": this operator is not supported; RoiAlign'
        in said
    )
    assert "docs/reference/custom-operators.md" in said
    assert main(["inspect", str(tmp_path / "net.onnx")]) == 0
    assert "docs/reference/custom-operators.md" in capfd.readouterr().out
    assert main([*words, "--custom-op", str(tmp_path / "warp.py")]) == 0


def test_an_operator_of_tflite_itself_can_be_a_custom_one(tmp_path: Path):
    file = ModelFile()
    graph = file.graph("main")
    x = graph.input("x", "float32", (4, 2))
    parts = graph.constant("parts", np.array([0, 0, 1, 1], np.int32))
    y = graph.tensor("y", "float32", (2, 2))
    graph.op("SEGMENT_SUM", [x, parts], [y])
    graph.outputs(y)
    path = tmp_path / "sums.tflite"
    path.write_bytes(file.data())
    with pytest.raises(UnsupportedError, match="BATCH_MATMUL with a constant matrix"):
        load_model(path)
    CUSTOM_OPS.register(
        CustomOp(
            "SEGMENT_SUM",
            "segment_sum",
            {"segment_sum.c": "/* not compiled here */"},
            lambda call, arrays: (arrays[0].reshape(2, 2, 2).sum(axis=1),),
        )
    )
    compiled = compile_for(load_model(path))
    assert "segment_sum(x," in compiled.tree.files["model/sums.c"]


def test_backend_pattern_can_cover_a_custom_operator(model: Path):
    toy = Toy({"pairs": custom_op("PairMax", wildcard())})
    BACKENDS.register(toy)
    module = partition(load_model(model), "toy").module
    assert module.functions["toy_custom_0"].attrs["composite"] == "toy.pairs"
    with pytest.raises(
        UnsupportedError,
        match="no target implements this custom operator; define it with --custom-op",
    ):
        compile_for(load_model(model))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("CUSTOM_OPS = 3", "the file has no list CUSTOM_OPS"),
        (
            "import no_such_module",
            "the custom operators cannot be read: No module named",
        ),
        ("def (", "the custom operators cannot be read: invalid syntax"),
    ],
)
def test_a_file_without_operators_is_an_error(tmp_path: Path, text: str, said: str):
    path = tmp_path / "ops.py"
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        load_custom_ops(path)


def test_a_function_must_be_a_c_name():
    with pytest.raises(
        UsageError, match="the function of the custom operator A, 'a b', is not a C"
    ):
        CUSTOM_OPS.register(
            CustomOp("A", "a b", {}, lambda call, arrays: (np.zeros(1),))
        )
