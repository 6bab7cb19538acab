"""Every tensor is requested for another place: it is there, or an error names it.

The place is read from the compiled module's statements and plan, not from its requests.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from firmwright.base.errors import FirmwrightError
from firmwright.flows.model.model import load_model
from firmwright.ir.core import PoolInfo
from firmwright.ir.module import IRModule
from firmwright.pipeline import Options, compile_model
from tests.fuzz.placed_networks import (
    BODIES,
    devices_of,
    is_buffer,
    placed_network,
    pool_of,
)
from tests.fuzz.random_networks import random_network

POOLS = (PoolInfo("sram"), PoolInfo("dtcm"))
TWO_CORES: dict[str, Any] = {"pools": POOLS, "devices": ("cpu0", "cpu1")}
FAST: dict[str, Any] = {"planner": "greedy_by_size"}
GOALS = ("balanced", "speed", "size", "ram")
NETWORKS, DEEP_NETWORKS = 4, 400


def tensors(module: IRModule) -> dict[str, bool]:
    """Return the names of the entry's tensors, each with whether it is a constant."""
    return {
        value.name: value.constant is not None for value in module.entry_graph.values
    }


def outcome(module: IRModule, tensor: str, device: str, pool: str, **given: Any) -> str:
    """Return "kept", or "refused" with an error that names the tensor; else fail."""
    key, request = "device_assignments", (tensor, device, pool)
    if not device:
        key, request = "pool_assignments", (tensor, pool)
    message = ""
    try:
        done = compile_model(
            module, Options(**{**FAST, **given, key: (request,)})
        ).module
    except FirmwrightError as error:
        message = str(error)
    if message:
        assert tensor in message
        return "refused"
    (bound, *_) = done.requests
    # Copies of a constant, and a tensor that is state in pipelined runs,
    # have other names.
    buffers = (tensor,) if is_buffer(done, tensor) else bound.buffers
    assert buffers
    if pool:
        assert {pool_of(done, buffer) for buffer in buffers} == {pool}
    is_computed = any(
        v.name == tensor for call in module.entry_graph.body for v in call.outputs
    )
    if device and is_computed:
        assert devices_of(done, buffers[0]) == {device}
    return "kept"


def needed_tensors(module: IRModule) -> list[str]:
    """Return the inputs and computed tensors that results need; others are removed."""
    entry = module.entry_graph
    needed = {value.name for value in entry.results}
    for call in reversed(entry.body):
        if any(value.name in needed for value in call.outputs):
            needed |= {value.name for value in call.variables}
    return [name for name in tensors(module) if name in needed]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", BODIES)
def test_no_transformation_loses_a_request(name: str) -> None:
    module = placed_network(name)
    for tensor in tensors(module):
        assert outcome(module, tensor, "cpu1", "dtcm", **TWO_CORES) == "kept"


@pytest.mark.deep
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("goal", GOALS)
def test_no_transformation_loses_a_request_for_a_goal(name: str, goal: str) -> None:
    module = placed_network(name)
    for tensor, is_constant in tensors(module).items():
        for device, pool in (
            ("cpu1", ""),
            ("", "dtcm"),
            ("cpu1", "dtcm"),
            ("cpu0", "dtcm"),
        ):
            expected = "refused" if is_constant and not (device and pool) else "kept"
            assert (
                outcome(module, tensor, device, pool, optimize=goal, **TWO_CORES)
                == expected
            )


@pytest.mark.deep
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize(
    "given",
    [{"stream_input_rows": True}, {"io_buffers": "caller"}, {"link_params": False}],
)
def test_a_pool_is_kept_or_refused_where_others_hold_tensors(
    name: str, given: dict[str, Any]
) -> None:
    module = placed_network(name)
    outcomes = {
        outcome(module, tensor, "", "dtcm", pools=POOLS, **given) for tensor in "xy"
    }
    outcomes |= {
        outcome(module, tensor, "", "dtcm", pools=POOLS, **given)
        for tensor, is_constant in tensors(module).items()
        if not is_constant
    }
    assert outcomes <= {"kept", "refused"}


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=[pytest.mark.deep] if seed >= NETWORKS else [])
        for seed in range(DEEP_NETWORKS)
    ],
)
def test_a_random_request_in_a_random_network_is_kept(seed: int) -> None:
    rng, module = random.Random(f"request {seed}"), random_network(seed)
    needed = needed_tensors(module)
    for tensor in rng.sample(needed, min(2, len(needed))):
        goal, device = rng.choice(GOALS), rng.choice(["cpu0", "cpu1", ""])
        result = outcome(module, tensor, device, "dtcm", optimize=goal, **TWO_CORES)
        assert result == "kept"


@pytest.mark.deep
def test_requests_beside_an_accelerator_are_kept_or_refused(digits_path: Any) -> None:
    module = load_model(digits_path).module
    board: dict[str, Any] = {"board": "mps2-an521", "target": "vanilla"}
    places = (("cpu0", ""), ("vanilla0", ""), ("vanilla0", "bank"), ("", "sram"))
    found = set()
    for tensor, (device, pool) in itertools.product(tensors(module), places):
        for pipelined in (False, True):
            found.add(
                outcome(module, tensor, device, pool, pipeline_runs=pipelined, **board)
            )
    assert found == {"kept", "refused"}
