"""The network of a report: the model's edges, and the kernels with their C."""

from pathlib import Path

import pytest
import tflite

from firmwright.artifacts import SourceTree
from firmwright.base.quant import Quantization
from firmwright.flows.measure.network_graph import (
    build_network,
    find_function,
    format_quantization,
)
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.pipeline import Compilation, compile_model
from firmwright.report.network import Network, NodeRole


@pytest.fixture(scope="module")
def digits() -> Compilation:
    root = Path(__file__).resolve().parents[3]
    model = load_model(root / "examples/01_digits/digits.tflite")
    return compile_for(model, "mps2-an386")


@pytest.fixture(scope="module")
def network(digits: Compilation) -> Network:
    network = build_network(digits)
    assert network is not None
    return network


def edges_of_file(path: Path) -> set[tuple[str, str]]:
    """Return the pairs of tensors that operators of a file compute from each other."""
    graph = tflite.Model.GetRootAs(path.read_bytes()).Subgraphs(0)
    names = [graph.Tensors(n).Name().decode() for n in range(graph.TensorsLength())]
    pairs = set()
    made = {names[n] for n in graph.InputsAsNumpy()}
    for number in range(graph.OperatorsLength()):
        operator = graph.Operators(number)
        output = names[operator.Outputs(0)]
        for tensor in operator.InputsAsNumpy():
            if tensor >= 0 and names[tensor] in made:
                pairs.add((names[tensor], output))
        made.add(output)
    return pairs


def test_edges_are_those_of_the_file(network: Network, digits_path: Path):
    """The reshape of the model computes nothing, so it is part of an edge."""
    found = set()
    for edge in network.edges:
        node = network.nodes[edge.target]
        if node.role is NodeRole.OPERATOR:
            found.add((edge.tensor.name, node.outputs[0].name))
    expected = edges_of_file(digits_path)
    with_kernel = {node.outputs[0].name for node in network.nodes if node.outputs}
    views = {made: source for source, made in expected if made not in with_kernel}
    assert len(views) == 1
    assert found == {
        (views.get(source, source), made)
        for source, made in expected
        if made not in views
    }


def test_each_operator_has_shapes_quantization_constants_and_its_kernel(
    network: Network, digits: Compilation
):
    operators = [node for node in network.nodes if node.role is NodeRole.OPERATOR]
    summaries = digits.summary.operators
    assert [node.index for node in operators] == [item.index for item in summaries]
    for node, summary in zip(operators, summaries, strict=True):
        assert node.kernel == summary.kernel
        definition = network.sources[node.kernel]
        assert f"digits_{node.kernel}(" in definition
        assert definition.startswith("/* ")
        assert definition.count("\n}\n") == 1
    first = operators[0]
    assert first.inputs[0].shape == (1, 8, 8, 1)
    assert "zero point" in first.inputs[0].quantization
    assert {tensor.name for tensor in first.constants} >= {"conv2d_0.bias"}
    constants = {t.name: t.size_bytes for node in operators for t in node.constants}
    assert sum(constants.values()) == digits.summary.constants_bytes


def test_ends_are_the_inputs_and_outputs_of_the_model(network: Network):
    ends = [node.label for node in network.nodes if node.role is not NodeRole.OPERATOR]
    assert ends == ["image", "digit"]
    assert network.neighbors(0) == ([], [1])


def test_module_without_a_graph_has_no_network(digits: Compilation):
    lowered = compile_model(digits.module, digits.options)
    assert build_network(lowered) is None


def test_function_is_found_with_its_comment_only():
    text = "/* Other. */\nint g(void)\n{\n}\n\n/* The sum. */\nK void f(int *x)\n{\n    g();\n}\n"
    tree = SourceTree({"model/m.c": f"static void f(int *x);\nint y = f(1);\n{text}"})
    assert find_function(tree, "f") == text[text.index("/* The sum") :]
    assert find_function(tree, "h") == ""


def test_quantization_is_described_by_range():
    assert format_quantization(None) == ""
    one = Quantization((0.5,), (3,))
    assert format_quantization(one) == "scale 0.5, zero point 3"
    several = Quantization((0.5, 0.25), (0, 0), axis=0)
    assert format_quantization(several) == "2 scales, 0.25 to 0.5, zero point 0"
