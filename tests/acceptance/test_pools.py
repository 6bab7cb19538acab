"""Buffers in several pools of a board: the hot ones in the fast memory, the firmware bit-exact."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from firmwright.flows.images import build_image
from firmwright.flows.sessions import open_session
from firmwright.flows.verifying import verify
from firmwright.ir.core import PoolInfo
from firmwright.ir.tir.plan import Plan
from firmwright.pipeline import Compiled

Compile = Callable[..., Compiled]
BOARD = "mps3-an547"
SMALL = (PoolInfo("sram", 9000), PoolInfo("isram"))


def planned(compiled: Compiled) -> Plan:
    assert compiled.module.plan is not None
    return compiled.module.plan


@pytest.mark.models
def test_everything_lies_in_the_fast_memory_where_it_fits(compiled: Compile) -> None:
    assert list(planned(compiled("kws", board=BOARD)).pool_bytes) == ["sram"]


@pytest.mark.models
@pytest.mark.qemu
def test_kws_is_split_over_two_memories_and_stays_bit_exact(compiled: Compile) -> None:
    done = compiled("kws", board=BOARD, pools=SMALL)
    made = planned(done)
    pools = {buffer.name: made.placements[buffer.name].pool for buffer in made.buffers}
    assert set(pools.values()) == {"sram", "isram"}
    assert made.pool_bytes["sram"] <= 9000
    scratch = {pools[buffer.name] for buffer in made.buffers if buffer.kind == "scratch"}
    assert scratch == {"sram"}, "what every operator works in comes first"
    image = build_image(done)
    regions = {region.name: region.used_bytes for region in image.sizes.regions}
    assert regions["isram"] == made.pool_bytes["isram"]
    found = verify(done, samples=3, open_with=lambda what: open_session(what, image=image))
    assert (found.samples, found.mismatches) == (3, 0)
