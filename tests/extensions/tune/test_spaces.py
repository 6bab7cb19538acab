"""All kernels of a layer's search space, even unoffered ones, compute the same."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from firmwright.boards import load_board
from firmwright.extensions.tune.kernel_comparison import (
    MISMATCH_COUNT_OUTPUT,
    KernelComparison,
    comparison_module,
    layer_module,
)
from firmwright.flows.board.model_session import open_session
from firmwright.flows.samples.sample_batches import generate_samples
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.tuning_records import DEFAULT_CHOICE, configured_schedule
from firmwright.pipeline import Options, compile_model, configure_module, make_lowering
from tests.conformance.generated_layers import generate_layers

LAYERS = ("conv2d", "fully_connected")
MOST_INSTRUCTIONS = 4_000_000
"""Of a layer's own loops: larger ones would only take time."""


def drawn(options: Options, count: int) -> list[KernelComparison]:
    """Return small layers with all schedules that have several configurations."""
    result: list[KernelComparison] = []
    for call in islice(generate_layers(11), 200):
        if call.op in LAYERS and len(result) < count:
            result += kernel_layer(call, options)
    return result


def kernel_layer(call: OpCall, options: Options) -> list[KernelComparison]:
    lowering = make_lowering(
        configure_module(layer_module(call), load_board("host"), options), options
    )
    (offered,) = lowering.calls()
    expected_entries = {
        configured_schedule(item.rule, item.config) for item in offered.candidates
    }
    extra = [choice for choice in lowering.space(0) if choice not in expected_entries]
    right = lowering.kernel(0, DEFAULT_CHOICE)
    if not extra or right.instructions > MOST_INSTRUCTIONS:
        return []
    kernels = tuple(lowering.kernel(0, choice) for choice in extra[::9])
    return [KernelComparison(call, right, kernels)]


@pytest.mark.sampled(2)
@pytest.mark.host_c
@pytest.mark.parametrize(
    "core",
    ["cortex-m0", pytest.param("cortex-m3", marks=pytest.mark.deep), "cortex-m4"],
)
def test_every_kernel_of_a_space_is_right(core: str, deep: bool) -> None:
    options = Options(board="host", target=f"cortex-m -mcpu={core}")
    tried = drawn(options, 12 if deep else 2)
    compiled = compile_model(
        comparison_module(tried, load_board("host"), options), options
    )
    with open_session(compiled, in_process=True) as session:
        outputs = session.run_all(
            generate_samples(compiled.module.io.inputs, 4).samples
        )
    for output in outputs:
        np.testing.assert_array_equal(output[MISMATCH_COUNT_OUTPUT], 0)
    assert (
        outputs[0][MISMATCH_COUNT_OUTPUT].size
        == sum(len(layer.kernels) for layer in tried)
        > 2
    )
