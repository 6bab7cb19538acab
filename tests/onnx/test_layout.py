"""Layout passes on ONNX models: remaining transposes and copies, duplicate calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from firmwright.base.errors import UsageError
from firmwright.boards import load_board
from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.predict.cost_prediction import predict_instructions
from firmwright.ir.graph.attributes.movement import TransposeAttrs
from firmwright.ir.module import IRModule
from firmwright.passes.graph import cse, sink_transposes
from firmwright.passes.graph.fold_scale import PASS as FOLD_SCALE
from firmwright.passes.graph.fold_transpose import PASS as FOLD_TRANSPOSE
from firmwright.passes.graph.transposed_reshapes import (
    AxisGroup,
    SourceReshape,
    group_axes,
    grouping_permutation,
    reshape_before_transpose,
)
from firmwright.pipeline import Options, configure_module
from tests.onnx.backend import BEFORE_LOWERING
from tests.onnx.onnx_models import (
    Net,
    mobilenet,
    shuffled_net,
    transformer_net,
    two_heads_net,
)
from tests.onnx.test_nets import entry_of, imported, optimized, results, sample


def counts(module: IRModule) -> Counter[str]:
    return Counter(call.op for call in entry_of(module).body)


def instructions(module: IRModule) -> int:
    """Return the cost model's instructions of a run without graph passes."""
    options = {"board": "mps2-an386", "planner": "greedy_by_size"}
    module = configure_module(module, load_board("mps2-an386"), Options(**options))
    compiled = compile_for(module.with_stage(BEFORE_LOWERING), **options)
    return sum(predict_instructions(compiled).values())


# ---- transpositions ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "left"),
    [
        (mobilenet, [(0, 2, 3, 1)]),  # of the image
        (transformer_net, [(0, 2, 3, 1)]),
        (two_heads_net, [(0, 2, 3, 1)]),
        # In each shuffle the channels themselves change places.
        (shuffled_net, [(0, 2, 3, 1), (0, 1, 2, 4, 3), (0, 1, 2, 4, 3)]),
    ],
)
def test_no_redundant_transpose_remains(
    make: Callable[[], bytes], left: Sequence[tuple[int, ...]]
) -> None:
    module = imported(make())
    best = optimized(module)
    permutations = [
        call.attributes(TransposeAttrs).perm
        for call in entry_of(best).body
        if call.op == "transpose"
    ]
    assert permutations == list(left)
    inputs = sample(module)
    expected, got = results(module, inputs), results(best, inputs)
    assert all(np.allclose(expected[k], got[k], rtol=1e-5, atol=1e-6) for k in expected)


def test_permuted_expression_inputs_are_exact_and_cheaper() -> None:
    module = imported(transformer_net())
    laid = sink_transposes.PASS(cse.PASS(module))
    folded = FOLD_TRANSPOSE(laid)
    assert counts(laid)["transpose"] > counts(folded)["transpose"] == 1
    inputs = sample(module)
    first, expected, got = (results(part, inputs) for part in (module, laid, folded))
    assert all(np.array_equal(expected[k], got[k]) for k in first)
    assert all(np.array_equal(first[k], got[k]) for k in first)
    assert instructions(folded) < instructions(laid)


@pytest.mark.host_c
def test_generated_c_computes_the_transformer() -> None:
    module = imported(transformer_net())
    inputs = sample(module)
    with open_session(compile_for(module, "host"), in_process=True) as session:
        (got,) = session.run_all([inputs])
    for name, expected in results(module, inputs).items():
        np.testing.assert_allclose(got[name], expected, rtol=1e-4, atol=1e-5)


def test_axes_merged_by_a_reshape_are_recognized() -> None:
    assert group_axes((1, 16, 8, 8), (1, 2, 8, 64)) == [
        AxisGroup(range(1), range(1)),
        AxisGroup(range(1, 2), range(1, 3)),
        AxisGroup(range(2, 4), range(3, 4)),
    ]
    assert group_axes((4, 1, 1), (4,)) == [AxisGroup(range(3), range(1))]
    # [n, h, w, c] seen as [n, c, h, w], joined to [n, c, hw].
    joined = reshape_before_transpose((1, 3, 5, 7), (0, 3, 1, 2), (1, 7, 15))
    assert joined == SourceReshape(shape=(1, 15, 7), perm=(0, 2, 1))
    # The same joined to [n, chw]: the channels lie on the wrong side.
    assert reshape_before_transpose((1, 3, 5, 7), (0, 3, 1, 2), (1, 105)) is None
    assert grouping_permutation((1, 3, 5, 7), (0, 3, 1, 2), (1, 105)) == (0, 3, 1, 2)
    # Channels split in two and put in another order, beside an image that stays.
    assert grouping_permutation((1, 8, 8, 2, 4), (0, 4, 3, 1, 2), (1, 8, 8, 8)) == (
        0,
        1,
        2,
        4,
        3,
    )


# ---- calls made once, bias -----------------------------------------------------------


def twice_net() -> bytes:
    """Build the same convolution twice, with equal but distinct weights."""
    net = Net(21)
    x = net.input("image", (1, 2, 8, 8))
    w = net.rng.normal(size=(4, 2, 3, 3)).astype(np.float32)
    a, b = (net.node("Conv", x, net.weight(w), pads=[1] * 4) for _ in range(2))
    return net.model(net.node("Mul", net.node("Sigmoid", a), net.node("Tanh", b)))


def test_duplicate_calls_are_eliminated() -> None:
    module = imported(twice_net())
    once = cse.PASS(module)
    assert (counts(module)["conv2d"], counts(once)["conv2d"]) == (2, 1)
    inputs = sample(module)
    expected, got = results(module, inputs), results(once, inputs)
    assert all(np.array_equal(expected[k], got[k]) for k in expected)
    assert instructions(once) < instructions(module)


def test_equal_results_remain_distinct_outputs() -> None:
    net = Net(22)
    x = net.input("x", (1, 8))
    module = imported(net.model(net.node("Exp", x), net.node("Exp", x)))
    once = cse.PASS(module)
    assert [value.name for value in entry_of(once).results] == ["exp0_0", "exp1_0"]
    assert counts(once) == counts(module)


def test_an_addition_after_a_product_becomes_its_bias() -> None:
    module = imported(transformer_net())
    laid = sink_transposes.PASS(module)
    folded = FOLD_SCALE(laid)
    inputs = sample(module)
    expected, got = results(laid, inputs), results(folded, inputs)
    assert all(np.allclose(expected[k], got[k], rtol=1e-5, atol=1e-6) for k in expected)
    assert counts(folded)["expression"] < counts(laid)["expression"]
    assert instructions(folded) < instructions(laid)


# ---- split without copies ------------------------------------------------------------


@pytest.mark.host_c
def test_slices_of_a_concatenation_need_no_copies() -> None:
    module = imported(two_heads_net())
    assert {"split", "strided_slice"} <= set(counts(module))
    compiled = compile_for(module, "host")
    kernels = {name.rsplit("_", 1)[0] for name in compiled.module.functions}
    assert not {"split", "strided_slice"} & kernels
    inputs = sample(module)
    with open_session(compiled, in_process=True) as session:
        (got,) = session.run_all([inputs])
    for name, expected in results(module, inputs).items():
        np.testing.assert_allclose(got[name], expected, rtol=1e-5, atol=1e-6)


def test_an_input_of_one_row_is_not_streamed() -> None:
    """The one channel of the image is where rows are expected."""
    net = Net()
    point = net.weight(np.array(0, np.int8))
    x = net.node(
        "QuantizeLinear", net.input("x", (1, 1, 8, 7)), net.scalar(0.05), point
    )
    data = net.model(net.node("DequantizeLinear", x, net.scalar(0.05), point))
    with pytest.raises(UsageError, match="has one row"):
        compile_for(imported(data), board="host", stream_input_rows=True)
