"""metadata.json has the documented keys, counts shared data once, is deterministic."""

from __future__ import annotations

import json

import numpy as np

from firmwright.base.dtypes import INT8, INT32, UINT8
from firmwright.base.quant import Quantization
from firmwright.base.resources import runtime_dir
from firmwright.base.version import ABI
from firmwright.ir import tir
from firmwright.ir.core import Constant, PoolInfo, Span
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.module import IoBinding, IoTensor, IRModule
from firmwright.ir.settings import Minimize, Objective, Settings
from firmwright.ir.tir.plan import BufferInfo, LiveRange, Placement, Plan
from firmwright.package.metadata import summarize_compilation

X, Y = tir.Buffer("x", INT8, (4,)), tir.Buffer("y", INT8, (4,))


def kernel(name: str, constant: str) -> tir.PrimFunc:
    c = tir.Buffer("c", INT8, (4,), scope="const")
    params = (
        tir.Param(tir.Buffer("x", INT8, (4,)), "in"),
        tir.Param(tir.Buffer("y", INT8, (4,)), "out"),
    )
    body = tir.AllocateConst(c, constant, tir.Seq(()))
    return tir.PrimFunc(
        name, params, body, {"op": "add", "macs": 4, "schedule": "default"}
    )


def pointer(buffer: tir.Buffer, offset: int = 0) -> tir.AccessPtr:
    return tir.AccessPtr(buffer, tir.IntImm(offset, INT32), 4, "rw")


def planned() -> IRModule:
    pool = tir.Buffer("sram", UINT8, (20,), scope="pool", alignment=16)
    args = (pointer(X), pointer(Y))
    calls = tir.Seq(
        (
            tir.PrimFuncCall("add_0", args, Span("m.tflite", 0, 0, "sum"), 0),
            tir.PrimFuncCall("add_1", args, Span("m.tflite", 0, 2, "sum2"), 2),
            tir.PrimFuncCall("add_0", args, Span("m.tflite", 0, 2, "sum2"), 2),
        )
    )
    body = tir.DeclBuffer(X, pointer(pool), tir.DeclBuffer(Y, pointer(pool, 16), calls))
    main = tir.PrimFunc("run", (tir.Param(pool, "pool"),), body, {"aot_main": True})
    data = np.arange(4, dtype=np.int8)
    names = ("a", "b", "unused")
    values = (data, data, data + 1)
    pairs = zip(names, values, strict=True)
    constants = {n: Constant.from_array(n, v, INT8) for n, v in pairs}
    functions = {
        "add_0": kernel("add_0", "a"),
        "add_1": kernel("add_1", "b"),
        "run": main,
    }
    kind = TensorType((4,), INT8, Quantization((0.5,), (-3,)))
    infos = (
        BufferInfo("x", 4, 1, (LiveRange(0, 2),), "input", ("sram",)),
        BufferInfo("y", 4, 1, (LiveRange(0, 3),), "output", ("sram",)),
        BufferInfo("add_0.col", 6, 4, (LiveRange(0, 1),), "scratch", ("sram",)),
        BufferInfo("add_0.row", 3, 4, (LiveRange(0, 1),), "scratch", ("sram",)),
        BufferInfo("add_1.col", 8, 4, (LiveRange(1, 2),), "scratch", ("sram",)),
    )
    places = {info.name: Placement("sram", 0) for info in infos}
    return IRModule(
        "m",
        functions,
        constants,
        pools=(PoolInfo("sram", 100), PoolInfo("dtcm", 64)),
        io=IoBinding(
            "arena", False, (IoTensor("in", "x", kind),), (IoTensor("o", "y", kind),)
        ),
        plan=Plan("search", places, {"sram": 20}, 16, infos),
        entry_name="run",
        settings=Settings(numerics="tflm", objective=Objective(Minimize.SPEED)),
    )


def test_the_documented_keys_are_present() -> None:
    compiler = {"tool": "gcc", "flags": ["-O2"]}
    facts = summarize_compilation(
        planned(), "host", compiler=compiler, options={"optimize": "speed"}
    ).to_json()
    assert facts["compiler"] == compiler
    assert facts["workspace_bytes"] == 20
    assert facts["lower_bound_bytes"] == 16
    assert facts["optimality_gap_bytes"] == 4
    assert facts["pools"] == {
        "dtcm": {"bytes": 0, "limit_bytes": 64, "access": "rw"},
        "sram": {"bytes": 20, "limit_bytes": 100, "access": "rw"},
    }
    assert facts["numerics"] == "tflm"
    assert facts["options"] == {"optimize": "speed"}


def test_scratch_is_the_peak_of_live_scratch() -> None:
    assert summarize_compilation(planned()).scratch_bytes == 9


def test_equal_constants_count_once_and_unused_ones_do_not_count() -> None:
    facts = summarize_compilation(planned()).to_json()
    assert [row["name"] for row in facts["constants"]] == ["a"]
    assert facts["constants_bytes"] == 4


def test_each_operator_has_one_row_with_its_location() -> None:
    rows = summarize_compilation(planned()).to_json()["operators"]
    assert [(row["index"], row["name"], row["kernel"]) for row in rows] == [
        (0, "y", "add_0"),
        (2, "y", "add_1"),
    ]
    assert rows[1]["span"] == "m.tflite: subgraph 0, node 2 (sum2)"
    assert rows[0]["macs"] == 4
    assert rows[0]["schedule"] == "default"


def test_tensors_have_placement_and_quantization() -> None:
    (tensor,) = summarize_compilation(planned()).to_json()["io"]["inputs"]
    assert (tensor["name"], tensor["field"], tensor["pool"], tensor["offset"]) == (
        "in",
        "x",
        "sram",
        0,
    )
    assert (tensor["scales"], tensor["zero_points"]) == ([0.5], [-3])


def test_the_text_is_deterministic_json() -> None:
    first, second = (
        json.dumps(summarize_compilation(planned()).to_json(), sort_keys=True)
        for _ in range(2)
    )
    assert first == second


def test_the_abi_matches_the_runtime() -> None:
    assert f"#define FWR_ABI {ABI}" in (runtime_dir() / "fwr.h").read_text()
