"""An engine with private memory: transfers in tiles, double-buffered."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from firmwright.base.dtypes import INT8, INT32
from firmwright.base.errors import InternalError, UsageError
from firmwright.flows.board.model_session import open_session
from firmwright.flows.measure.instruction_counts import measure_instructions
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.predict.run_schedule import (
    check_races,
    modeled_times,
    parallel_calls,
    schedule_run,
)
from firmwright.flows.samples.sample_batches import generate_samples
from firmwright.ir import tir
from firmwright.ir.core import Constant, PoolInfo
from firmwright.ir.graph.evaluate import evaluate_graph
from firmwright.ir.graph.nodes import Function
from firmwright.ir.module import IRModule
from firmwright.ir.printer import parse_module, print_module
from firmwright.ir.tir.traversal import Node, prim_calls, rewrite_func, walk
from firmwright.ir.tir.verify_async_calls import diagnose_async_calls
from firmwright.ops.registry import op_table
from firmwright.pipeline import Compilation

BANK = (PoolInfo("sram"), PoolInfo("bank", targets=("vanilla",)))


def chain(*operators: str, rows: int = 16) -> IRModule:
    """Return an operator chain on `rows` x 8 x 8; each "conv2d" has its own weights."""
    rng = np.random.Generator(np.random.PCG64(5))
    constants: dict[str, Constant] = {}
    lines = []
    kind = f"i8[1, {rows}, 8, 8] quant(12.0, -2)"
    for number, op in enumerate(operators):
        source, output = f"%v{number}", f"%v{number + 1}"
        if op != "conv2d":
            lines.append(f"  {output}: {kind} = {op}({source})")
            continue
        weights = rng.integers(-100, 100, (8, 3, 3, 8))
        biases = rng.integers(-100, 100, (8,))
        for name, array, dtype in (("w", weights, INT8), ("b", biases, INT32)):
            constants[f"{name}{number}"] = Constant.from_array(
                f"{name}{number}", array, dtype
            )
        lines.append(
            f"  {output}: {kind} = conv2d({source}, %w{number}: i8[8, 3, 3, 8] quant(0.01, 0) "
            f"const @w{number}, %b{number}: i32[8] quant(0.12, 0) const @b{number}) "
            '{stride=[1, 1], dilation=[1, 1], padding=[1, 1, 1, 1], activation="none"}'
        )
    declared = "\n".join(
        f"const @{c.name} = {c.dtype.short}[{', '.join(map(str, c.shape))}] sha256.{c.digest}"
        for c in constants.values()
    )
    body = "\n".join(lines)
    text = (
        f"firmwright ir 2\nmodule @net\n{declared}\n"
        f"graph @main(%v0: {kind}) -> (%v{len(operators)}) {{\n{body}\n}}\n"
    )
    return replace(parse_module(text, structure_only=True), constants=constants)


def compiled(module: IRModule, **given: object) -> Compilation:
    options = {
        "target": "vanilla, host",
        "pools": BANK,
        "devices": ("cpu0", "dma0"),
        **given,
    }
    return compile_for(module, **options)


def steps(done: Compilation) -> list[str]:
    """Return which devices start (s), await (w) or execute (-) each call of a run."""
    marks = {"start": "s", "wait": "w", "call": "-"}
    return [f"{marks[call.phase]}{call.device or 'cpu0'}" for call in run_calls(done)]


def run_calls(done: Compilation) -> list[tir.PrimFuncCall]:
    main = done.module.entry
    assert isinstance(main, tir.PrimFunc)
    kernels = done.module.functions
    return [
        c for c in prim_calls(main.body) if not kernels[c.callee].attrs.get("keeps")
    ]


def is_right(done: Compilation, module: IRModule) -> bool:
    (sample,) = generate_samples(done.module.io.inputs, 1, 3).samples
    entry = module.entry
    assert isinstance(entry, Function)
    with open_session(done, in_process=True) as session:
        result = session.run(sample)
    error = evaluate_graph(module, sample, op_table(), {})
    return all(np.array_equal(result[v.name], error[v.name]) for v in entry.results)


def places(done: Compilation) -> dict[str, set[str]]:
    """Return the pools of the arguments of each device's calls."""
    assert done.module.plan is not None
    placements = done.module.plan.placements
    result: dict[str, set[str]] = {}
    for call in run_calls(done):
        for arg in call.args:
            if isinstance(arg, tir.AccessPtr) and arg.buffer.name in placements:
                pool = placements[arg.buffer.name].pool
                result.setdefault(call.device or "cpu0", set()).add(pool)
    return result


@pytest.mark.host_c
def test_copy_device_transfers_tensors_of_private_memory() -> None:
    module = chain("conv2d")
    done = compiled(module)
    assert is_right(done, module)
    assert places(done)["vanilla0"] == {"bank"}
    text = str(done.tree.files[f"model/{done.c_prefix}.c"])
    copies = text[text.index("_transfer_of_dma0(") : text.index("_on_dma0(")]
    assert copies.count("{pools->bank") == copies.count("{pools->sram") == 2
    assert "device_copy_" not in text, "no core has a copy to do"


@pytest.mark.host_c
def test_transfers_of_tiles_overlap_with_the_engine() -> None:
    module = chain("relu", "conv2d", "relu")
    done = compiled(module)
    assert is_right(done, module)
    result = steps(done)
    assert result.count("svanilla0") == 2
    assert result[0] == result[-1] == "-cpu0"
    under_way = 0
    beside = []
    for step in result:
        under_way += {"svanilla0": 1, "wvanilla0": -1}.get(step, 0)
        beside += [step] if step == "sdma0" and under_way else []
    assert len(beside) == 2, "of four copies: the second one in, and the first one out"


@pytest.mark.host_c
def test_two_channels_transfer_tiles_in_and_out_at_once() -> None:
    module = chain("conv2d", rows=32)
    one, two = compiled(module), compiled(module, devices=("cpu0", "dma0", "dma1"))
    assert is_right(two, module)
    in_flight: set[str] = set()
    together = 0
    for step in steps(two):
        in_flight = in_flight | {step[1:]} if step[0] == "s" else in_flight - {step[1:]}
        together += in_flight == {"dma0", "dma1", "vanilla0"}
    assert together == 2, (
        "of four tiles, the third and fourth in, the first and second out"
    )
    assert one.module.plan is not None
    assert two.module.plan is not None
    assert two.module.plan.pool_bytes == one.module.plan.pool_bytes


def test_double_buffers_take_less_of_the_bank_than_whole_tensors() -> None:
    module = chain("relu", *("conv2d", "relu") * 2)
    whole = compiled(
        module, pools=(PoolInfo("sram"), replace(BANK[1], size_bytes=1 << 20))
    )
    assert whole.module.plan is not None
    weights = sum(
        c.shape[0] * 72 for n, c in module.constants.items() if n.startswith("w")
    )
    tables = 2 * 3 * 32  # biases, multipliers and shifts of eight channels
    assert whole.module.plan.pool_bytes["bank"] - weights - tables < 2 * 16 * 64


def test_tensors_between_calls_of_one_engine_are_not_transferred() -> None:
    done = compiled(chain("conv2d", "conv2d"))
    assert steps(done).count("sdma0") == 2, "in once and out once"


def test_weights_are_in_the_bank_before_the_first_run() -> None:
    done = compiled(chain("conv2d", "conv2d"))
    text = str(done.tree.files[f"model/{done.c_prefix}.c"])
    head, run = (
        text[: text.index("int32_t net_run(")],
        text[text.index("int32_t net_run(") :],
    )
    assert head.count("memcpy(pools->bank") == 6, (
        "weights and biases of two, tables of both"
    )
    assert "memcpy" not in run


@pytest.mark.host_c
def test_core_copies_if_the_copy_device_refuses() -> None:
    module = chain("relu", "conv2d", "relu")
    assert is_right(compiled(module, fallback=True), module)


def test_private_pool_is_unused_without_its_engine() -> None:
    names: Callable[[str], list[str]] = lambda target: [  # a table of two  # noqa: E731  # a table of two
        pool.name
        for pool in compile_for(
            chain("relu"), board="mps2-an521", target=target
        ).module.pools
    ]
    assert names("") == ["sram"]
    assert names("vanilla") == ["sram", "bank"]


def test_private_pool_that_is_too_small_is_reported() -> None:
    pools = (PoolInfo("sram"), replace(BANK[1], size_bytes=256))
    with pytest.raises(Exception, match="bank") as caught:
        compiled(chain("conv2d"), pools=pools)
    assert "Traceback" not in str(caught.value)


def test_a_tiled_module_is_the_same_from_its_text() -> None:
    done = compiled(chain("relu", "conv2d", "relu"))
    saved = parse_module(print_module(done.imported), structure_only=True)
    saved = replace(saved, constants=done.imported.constants)
    assert compile_for(saved).tree.files == done.tree.files


def test_missing_copy_device_is_reported() -> None:
    with pytest.raises(
        UsageError, match="there is no device dma0: the board has one core, cpu0"
    ):
        compile_for(chain("relu"), board="mps2-an386", devices=("cpu0", "dma0"))


def on_board() -> Compilation:
    """Return four tiles on an engine with modeled speed and transfers."""
    target = "vanilla -macs-per-cycle=16"
    return compile_for(chain("conv2d", rows=32), board="mps2-an521", target=target)


@pytest.mark.qemu
def test_double_buffering_hides_transfers() -> None:
    line = measure_instructions(on_board()).timeline
    assert line is not None
    assert line.parallel.transfers > 3000
    assert line.makespan < 0.8 * line.parallel.sequential
    pairs = [{a.call.device, b.call.device} for a, b in parallel_calls(line.schedule)]
    assert pairs.count({"dma0", "dma1"}) == 2, (
        "the third and fourth tile in, the first and second out"
    )


# ---- planted defects -----------------------------------------------------------------


def changed(done: Compilation, rule: Callable[[Node], Node | None]) -> IRModule:
    main = done.module.entry
    assert isinstance(main, tir.PrimFunc)
    return done.module.with_function(rewrite_func(main, rule))


def findings(done: Compilation, module: IRModule) -> tuple[list[str], str]:
    """Return the findings of the verifier and of the trace."""
    main = module.entry
    assert isinstance(main, tir.PrimFunc)
    counts = {call.op: 4000 for call in prim_calls(main.body) if call.op >= 0}
    schedule = schedule_run(module, counts, modeled_times(done))
    try:
        check_races(module, schedule)
    except InternalError as error:
        return diagnose_async_calls(main, module.functions), str(error)
    return diagnose_async_calls(main, module.functions), ""


def test_a_wait_that_is_too_late_is_found_by_verifier_and_trace() -> None:
    tiled = on_board()

    def later(node: Node) -> Node | None:
        """Move a tile's first wait after the start of the engine that reads it."""
        if not isinstance(node, tir.Seq):
            return None
        phases = [
            (s.device, s.phase) for s in node.stmts if isinstance(s, tir.PrimFuncCall)
        ]
        if ("dma0", "wait") not in phases:
            return None
        at = phases.index(("dma0", "wait"))
        assert phases[at + 1] == ("vanilla0", "start")
        stmts = list(node.stmts)
        stmts.insert(at + 1, stmts.pop(at))
        return tir.Seq(tuple(stmts))

    assert findings(tiled, tiled.module) == ([], "")
    verifier, trace = findings(tiled, changed(tiled, later))
    assert re.match(
        r"@vanilla_conv2d_0_1 op 2 on vanilla0 reads bank \[0, 576\) while "
        r"@device_copy_1 op 1 on dma0 is in flight",
        verifier[0],
    )
    assert (
        "operator 2 reads bank [0, 576) at 0, but operator 1 on dma0 uses it until"
        in trace
    )


def test_one_buffer_instead_of_two_is_found_by_verifier_and_trace() -> None:
    tiled = on_board()

    def shared(node: Node) -> Node | None:
        """Place the second input tile where the first one is."""
        if isinstance(node, tir.DeclBuffer) and node.buffer.name == "v0_rows_1_in":
            return tir.DeclBuffer(node.buffer, first.source, node.body)
        return None

    main = tiled.module.entry
    assert isinstance(main, tir.PrimFunc)
    declared = [node for node in walk(main.body) if isinstance(node, tir.DeclBuffer)]
    (first,) = (node for node in declared if node.buffer.name == "v0_rows_in")
    verifier, trace = findings(tiled, changed(tiled, shared))
    assert any(
        "writes bank [0, 640) while @vanilla_conv2d" in line for line in verifier
    )
    assert "operator 2 reads bank [0, 576)" in trace
    assert "but operator 4 on dma0 uses it until" in trace
