"""Several models in one image and one set of pools: bit-exact, in the memory of one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from firmwright.artifacts import Image
from firmwright.device.session import Session
from firmwright.device.transport_selection import open_transport
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.samples.reference_outputs import run_oracle_reference
from firmwright.flows.samples.sample_batches import generate_samples
from firmwright.pipeline import Bundle, Compilation, bundle

Compile = Callable[..., Compilation]
BOARD = "mps2-an386"


def check_all(both: Bundle, image: Image) -> None:
    """Every model gives its reference's outputs once all inputs are written."""
    batches = [
        generate_samples(part.module.io.inputs, 4).samples for part in both.parts
    ]
    references = [
        run_oracle_reference(part, samples, "litert").outputs
        for part, samples in zip(both.parts, batches, strict=True)
    ]
    names = [part.module.name for part in both.parts]
    identity = bytes.fromhex(both.model_id)
    with Session(open_transport(both.board, image.elf), model_id=identity) as session:
        for index, samples in enumerate(zip(*batches, strict=True)):
            given = {
                f"{name}/{key}": value
                for name, one in zip(names, samples, strict=True)
                for key, value in one.items()
            }
            found = session.run(given)
            for name, reference in zip(names, references, strict=True):
                for key, value in reference[index].items():
                    assert np.array_equal(found[f"{name}/{key}"], value.reshape(-1)), (
                        name,
                        key,
                    )


def pool_bytes(image: Image) -> dict[str, int]:
    """Return the sizes of the glue's pool arrays."""
    return {s.name: s.size_bytes for s in image.sizes.symbols if "pool_sram" in s.name}


@pytest.mark.models
@pytest.mark.qemu
@pytest.mark.deep
def test_kws_and_ww_share_a_pool_of_the_larger_size(compiled: Compile) -> None:
    kws, ww = compiled("kws", board=BOARD), compiled("ww", board=BOARD)
    both = bundle([kws, ww])
    peaks = [part.metadata["workspace_bytes"] for part in (kws, ww)]
    kept = 16  # the three outputs of ww, in an aligned place
    assert both.metadata["workspace_bytes"] <= max(peaks) + kept < sum(peaks)
    assert both.metadata["run_order"] == ["str_ww_ref_model", "kws_ref_model"]
    image = build_image(both)
    assert pool_bytes(image) == {"pool_sram": both.metadata["workspace_bytes"]}
    check_all(both, image)


@pytest.mark.models
@pytest.mark.qemu
@pytest.mark.deep
def test_concurrent_models_have_separate_pools(compiled: Compile) -> None:
    kws, ww = compiled("kws", board=BOARD), compiled("ww", board=BOARD)
    both = bundle([kws, ww], concurrent=True)
    image = build_image(both)
    assert pool_bytes(image) == {
        f"{part.module.name}_pool_sram": part.metadata["workspace_bytes"]
        for part in (kws, ww)
    }
    assert both.metadata["workspace_bytes"] == sum(pool_bytes(image).values())
    check_all(both, image)


@pytest.mark.models
@pytest.mark.host_c
@pytest.mark.deep
def test_three_models_share_memory_with_caller_buffers(compiled: Compile) -> None:
    for io in ("arena", "caller"):
        parts = [compiled(name, io_buffers=io) for name in ("kws", "ww", "digits")]
        both = bundle(parts)
        most = max(part.metadata["workspace_bytes"] for part in parts)
        if io == "caller":
            assert both.metadata["workspace_bytes"] == most
        check_all(both, build_image(both))
