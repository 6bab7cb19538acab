"""Attention, rotary embeddings and caches as state, compared with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import onnx
from firmwright.base.errors import ModelError
from firmwright.flows.board.model_session import open_session
from firmwright.oracle.compare import compare_outputs
from firmwright.oracle.reference_runner import run_reference
from onnx import TensorProto
from tests.onnx.backend import compile_module, merge_modules
from tests.onnx.onnx_models import Net
from tests.onnx.test_contrib_operators import Case, c, compare, f
from tests.onnx.test_nets import entry_of, imported, optimized, results

Array = NDArray[Any]
KEYS = 9
FLAT = {"q_num_heads": 4, "kv_num_heads": 2}


def standard(
    op: str, operands: Sequence[Any], attrs: dict[str, Any], *outputs: int
) -> Case:
    return Case(op, operands, attrs, outputs or (0,), "", 24)


def attention(*operands: Any, outputs: Sequence[int] = (), **attrs: Any) -> Case:
    return standard("Attention", operands, attrs, *outputs)


def length(*counts: int) -> Array:
    return np.array(counts, np.int64)


CACHE = (f(1, KEYS, 12), f(1, KEYS, 8))
APART = (f(2, 4, 3, 6), f(2, 2, KEYS, 6), f(2, 2, KEYS, 5))
PAST = (None, f(2, 2, 4, 6), f(2, 2, 4, 5))
CASES: dict[str, Case] = {
    "flat": attention(f(1, 1, 24), *CACHE, **FLAT),
    "flat_length": attention(f(1, 1, 24), *CACHE, None, None, None, length(5), **FLAT),
    "flat_rows": attention(
        f(1, 3, 24), *CACHE, None, None, None, length(7), **FLAT, is_causal=1, scale=0.3
    ),
    "wide_heads": attention(
        f(1, 2, 80), f(1, 5, 20), f(1, 5, 36), q_num_heads=4, kv_num_heads=1
    ),
    "apart": attention(*APART),
    "apart_causal": attention(*APART, is_causal=1),
    "apart_length": attention(*APART, None, None, None, length(9, 4), is_causal=1),
    "apart_past": attention(*APART, *PAST, outputs=(0, 1, 2), is_causal=1),
    "mask": attention(f(1, 1, 24), *CACHE, f(1, KEYS), **FLAT),
    "limited": attention(f(1, 1, 24), *CACHE, **FLAT, softcap=2.0),
    "rotary": standard(
        "RotaryEmbedding", [f(2, 3, 5, 8), c(2, 5, 4), c(2, 5, 4)], {"interleaved": 1}
    ),
    "rotary_part": standard(
        "RotaryEmbedding",
        [f(1, 5, 24), c(9, 2), c(9, 2), np.array([[3, 0, 8, 1, 1]])],
        {"num_heads": 3, "rotary_embedding_dim": 4},
    ),
}


USED = np.arange(KEYS)[:, None] < 7  # ONNX Runtime clears the other rows
PASTS = (f(1, 2, KEYS, 16) * USED, f(1, 2, KEYS, 16) * USED)
ENDS = (np.array([6], np.int32), np.array([7], np.int32))
ANGLES = (c(KEYS, 8), c(KEYS, 8))
GROUPS = {"num_heads": 4, "kv_num_heads": 2}


def grouped(*operands: Any, **attrs: Any) -> Case:
    return Case("GroupQueryAttention", operands, GROUPS | attrs, (0, 1, 2))


CASES |= {
    "grouped": grouped(f(1, 1, 64), f(1, 1, 32), f(1, 1, 32), *PASTS, *ENDS),
    "grouped_rows": grouped(
        f(1, 3, 64), f(1, 3, 32), f(1, 3, 32), *PASTS, *ENDS, scale=0.2
    ),
    "grouped_rotary": grouped(
        f(1, 1, 64), f(1, 1, 32), f(1, 1, 32), *PASTS, *ENDS, *ANGLES, do_rotary=1
    ),
    "grouped_packed": grouped(
        f(1, 2, 128),
        None,
        None,
        *PASTS,
        *ENDS,
        *ANGLES,
        do_rotary=1,
        rotary_interleaved=1,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_attention_matches_onnx_runtime(case: Case) -> None:
    for ours, theirs in compare(case):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-5)


def decoder(scales: int, rows: int = 1) -> bytes:
    """Return an attention step whose int8 cache is updated at `position`."""
    net, shape = Net(opset=24), (1, KEYS, 16)
    parts = [
        net.input(name, (1, rows, n)) for name, n in (("q", 32), ("k", 16), ("v", 16))
    ]
    position = net.input("position", (1,), TensorProto.INT64)
    states = {}
    for k, name in enumerate(("keys", "values"), 1):
        cache = net.input(name, shape, TensorProto.INT8)
        scale = net.weight(np.linspace(0.02, 0.03, scales, dtype=np.float32))
        point = net.weight(np.arange(scales, dtype=np.int8) - 3)
        row = net.node("QuantizeLinear", parts[k], scale, point, axis=2)
        states[name] = net.node("TensorScatter", cache, row, position, axis=1)
        parts[k] = net.node("DequantizeLinear", states[name], scale, point, axis=2)
    used = net.node("Add", position, net.weight(np.array([rows])))
    y = net.node("Attention", *parts, "", "", "", used, **FLAT, is_causal=1)
    model = onnx.ModelProto.FromString(net.model(y, *states.values()))
    for output, (name, following) in zip(
        model.graph.output[1:], states.items(), strict=True
    ):
        output.CopyFrom(
            onnx.helper.make_tensor_value_info(following, TensorProto.INT8, shape)
        )
        entry = model.metadata_props.add()
        entry.key, entry.value = f"firmwright.state.{name}", following
    return bytes(model.SerializeToString())


@pytest.mark.host_c
@pytest.mark.parametrize(("scales", "rows"), [(16, 1), (1, 2)])
def test_a_cache_is_updated_in_place_and_attended_up_to_its_length(
    scales: int, rows: int
) -> None:
    data = decoder(scales, rows)
    feeds = [
        {name: f(1, rows, n) for name, n in (("q", 32), ("k", 16), ("v", 16))}
        | {"position": length(at * rows)}
        for at in range(KEYS // rows)
    ]
    expected = run_reference(data, feeds, "onnxruntime").outputs
    compiled = compile_module(optimized(imported(data)), "host")
    with open_session(compiled, in_process=True) as session:
        got = session.run_all(feeds)
    assert compare_outputs(expected, got).mismatches == 0
    plan = compiled.module.plan
    assert plan is not None
    assert sum(buffer.size_bytes == KEYS * 16 for buffer in plan.buffers) == 2


@pytest.mark.host_c
def test_kernels_of_attention_match_the_references() -> None:
    pairs = [
        case.model() for name, case in CASES.items() if name not in ("mask", "limited")
    ]
    modules = [optimized(imported(data)) for data, _ in pairs]
    compiled = compile_module(merge_modules(modules), "host")
    feeds = {
        f"{k}.{value.name}": pairs[k][1][value.name]
        for k, module in enumerate(modules)
        for value in entry_of(module).params
    }
    with open_session(compiled, in_process=True) as session:
        (got,) = session.run_all([feeds])
    for k, (module, (_, part)) in enumerate(zip(modules, pairs, strict=True)):
        expected = results(module, part)
        own = {name: got[f"{k}.{name}"] for name in expected}
        assert compare_outputs([expected], [own]).mismatches == 0


def test_a_state_must_be_an_input_and_an_output() -> None:
    model = onnx.ModelProto.FromString(decoder(1))
    model.metadata_props[0].value = "nothing"
    with pytest.raises(
        ModelError, match="the state 'keys' = 'nothing' is not an input and an"
    ):
        imported(model.SerializeToString())
