"""Inputs and outputs in the private pool of an accelerator, copied by the port."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.errors import UsageError
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.samples.sample_batches import generate_samples
from firmwright.flows.verify.verification import verify
from firmwright.ir.graph.evaluate import evaluate_graph
from firmwright.ops.registry import op_table
from firmwright.pipeline import Compilation
from tests.backends.engine_networks import BANKS, network

IN_BANK = (("x", "vanilla0", "bank"), ("b", "vanilla0", "bank"))


def pools(done: Compilation) -> dict[str, str]:
    assert done.module.plan is not None
    return {name: place.pool for name, place in done.module.plan.placements.items()}


@pytest.mark.host_c
@pytest.mark.parametrize("also_core", [False, True])
def test_input_and_output_are_in_the_bank(also_core: bool) -> None:
    """A reader on the core gets a copy."""
    edges = (("x", "a"), ("a", "b"), *((("x", "r"),) if also_core else ()))
    module = network(*edges)
    options = {"pools": BANKS[:2], "device_assignments": IN_BANK}
    done = compile_for(module, target="vanilla, host", **options)
    assert {pools(done)[name] for name in "xab"} == {"bank"}
    assert ("sram" in pools(done).values()) == also_core
    header = str(done.tree.files["model/net.h"])
    assert "In bank, which only an accelerator can access: written by DMA" in header
    batch = generate_samples(done.module.io.inputs, 2)
    with open_session(done, in_process=True) as session:
        for sample in batch.samples:
            expected = evaluate_graph(module, dict(sample), op_table(), {})
            result = session.run(dict(sample))
            assert all(np.array_equal(result[name], expected[name]) for name in result)


@pytest.mark.qemu
def test_port_copies_by_dma_in_qemu() -> None:
    module = network(("x", "a"), ("a", "b"))
    done = compile_for(
        module, target="vanilla", board="mps2-an521", device_assignments=IN_BANK
    )
    assert set(pools(done).values()) == {"bank"}
    image = build_image(done)
    assert {"fwr_port_pool_write", "fwr_port_pool_read"} <= {
        s.name for s in image.sizes.symbols
    }
    assert verify(done, samples=3).exact


@pytest.mark.parametrize("device", ["cpu0", "vanilla1"])
def test_a_bank_of_another_device_is_refused(device: str) -> None:
    options = {"pools": BANKS, "device_assignments": (("x", device, "bank"),)}
    with pytest.raises(
        UsageError, match=r"the tensor x cannot be in bank: the device .* sram"
    ):
        compile_for(network(("x", "a")), target="vanilla, vanilla, host", **options)
