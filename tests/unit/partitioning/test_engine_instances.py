"""Two instances of one engine are two devices with their own banks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.samples.sample_batches import generate_samples
from firmwright.flows.verify.verification import verify
from firmwright.ir import tir
from firmwright.ir.graph.evaluate import evaluate_graph
from firmwright.ir.printer import parse_module, print_module
from firmwright.ir.tir.traversal import prim_calls
from firmwright.ops.registry import op_table
from firmwright.pipeline import Compilation
from tests.backends.engine_networks import BANKS, network

TWICE = "vanilla, vanilla, host"


BRANCHES = (("x", "a"), ("a", "b"), ("x", "c"), ("c", "d"))
CHAIN = (("x", "a"), ("a", "b"), ("b", "c"))


def devices(done: Compilation) -> list[str]:
    """Return the devices that start calls of the accelerator."""
    main = done.module.entry
    assert isinstance(main, tir.PrimFunc)
    calls = [call for call in prim_calls(main.body) if call.phase == "start"]
    return [call.device for call in calls if call.device.startswith("vanilla")]


@pytest.mark.host_c
def test_branches_run_on_two_devices_with_their_own_banks() -> None:
    module = network(*BRANCHES)
    done = compile_for(module, target=TWICE, pools=BANKS)
    assert set(devices(done)) == {"vanilla0", "vanilla1"}
    assert done.module.plan is not None
    by_pool: dict[str, set[str]] = {}
    for name, place in done.module.plan.placements.items():
        by_pool.setdefault(place.pool, set()).add(name)
    assert {"vanilla_conv2d_0_bias_ram", "a"} <= by_pool["bank"]
    assert {"vanilla_1_conv2d_0_bias_ram", "c"} <= by_pool["bank1"]
    batch = generate_samples(done.module.io.inputs, 2)
    with open_session(done, in_process=True) as session:
        for sample in batch.samples:
            expected = evaluate_graph(module, dict(sample), op_table(), {})
            result = session.run(dict(sample))
            assert all(
                np.array_equal(result[name], expected[name]) for name in ("b", "d")
            )


def test_a_chain_stays_on_one_instance_while_its_weights_fit() -> None:
    done = compile_for(network(*CHAIN), target=TWICE, pools=BANKS)
    assert set(devices(done)) == {"vanilla0"}
    small = replace(
        BANKS[1], size_bytes=960
    )  # two tensors, and the constants of two convolutions
    done = compile_for(network(*CHAIN), target=TWICE, pools=(BANKS[0], small, BANKS[2]))
    assert devices(done) == ["vanilla0", "vanilla0", "vanilla1"]


def test_the_user_chooses_an_instance() -> None:
    module = network(*CHAIN)
    done = compile_for(module, target=TWICE, pools=BANKS, offload=(("a", "vanilla_1"),))
    assert set(devices(done)) == {"vanilla1"}, "so that nothing is copied between banks"
    again = compile_for(parse_module(print_module(done.imported)))
    assert again.tree.files["model/net.c"] == done.tree.files["model/net.c"]


@pytest.mark.qemu
def test_two_instances_verify_in_qemu() -> None:
    done = compile_for(
        network(*BRANCHES), board="mps2-an521", target="vanilla, vanilla"
    )
    assert set(devices(done)) == {"vanilla0", "vanilla1"}
    assert verify(done, samples=3).exact
