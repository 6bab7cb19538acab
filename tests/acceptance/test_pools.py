"""Several pools of a board: hot buffers in the fast memory, results bit-exact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firmwright.base.errors import BoardError
from firmwright.boards import load_board
from firmwright.device.session import Session
from firmwright.device.transport_selection import open_transport
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.samples.reference_outputs import run_oracle_reference
from firmwright.flows.samples.sample_batches import generate_samples
from firmwright.flows.verify.verification import verify
from firmwright.ir.core import PoolInfo
from firmwright.ir.printer import parse_module, print_module
from firmwright.ir.tir.plan import Plan
from firmwright.pipeline import Compilation, Options, bundle, compile_model

Compile = Callable[..., Compilation]
BOARD = "mps3-an547"
SMALL = (PoolInfo("sram", 9000), PoolInfo("isram"))


def planned(compiled: Compilation) -> Plan:
    assert compiled.module.plan is not None
    return compiled.module.plan


@pytest.mark.models
def test_fast_memory_is_preferred(compiled: Compile) -> None:
    assert list(planned(compiled("kws", board=BOARD)).pool_bytes) == ["sram"]


@pytest.mark.models
@pytest.mark.qemu
def test_kws_is_split_over_two_memories_and_stays_bit_exact(compiled: Compile) -> None:
    done = compiled("kws", board=BOARD, pools=SMALL)
    made = planned(done)
    pools = {buffer.name: made.placements[buffer.name].pool for buffer in made.buffers}
    assert set(pools.values()) == {"sram", "isram"}
    assert made.pool_bytes["sram"] <= 9000
    scratch = {
        pools[buffer.name] for buffer in made.buffers if buffer.kind == "scratch"
    }
    assert scratch == {"sram"}, "the arena of all operators comes first"
    image = build_image(done)
    regions = {region.name: region.used_bytes for region in image.sizes.regions}
    assert regions["isram"] == made.pool_bytes["isram"]
    found = verify(
        done, samples=3, open_with=lambda what: open_session(what, image=image)
    )
    assert (found.samples, found.mismatches) == (3, 0)


def from_slow_flash(digits_path: Path, **options: Any) -> Compilation:
    model = load_model(digits_path)
    boards = (Path(__file__).with_name("boards"),)
    given = Options(board="slow-flash", board_dirs=boards, **options)
    return compile_model(model.module, given, source=model.source)


@pytest.mark.qemu
def test_weights_are_copied_to_ram_for_slow_flash_and_speed(digits_path: Path) -> None:
    done = from_slow_flash(digits_path, optimize="speed")
    made = planned(done)
    kept = {buffer.name for buffer in made.buffers if buffer.kind == "const"}
    assert kept
    source, header = (str(done.tree.files[f"model/digits.{kind}"]) for kind in "ch")
    copies = source[
        source.index("void digits_init(") : source.index("int32_t digits_run(")
    ]
    assert copies.count("memcpy(") == len(kept)
    assert "void digits_init(const struct digits_workspace_pools *pools);" in header
    assert "memcpy" not in source[source.index("int32_t digits_run(") :]
    assert verify(done, samples=3).mismatches == 0


def test_weights_are_not_copied_otherwise(digits_path: Path) -> None:
    for options in ({}, {"optimize": "speed", "link_params": False}):
        done = from_slow_flash(digits_path, **options)
        assert "digits_init" not in str(done.tree.files["model/digits.h"])


@pytest.mark.qemu
@pytest.mark.deep
def test_ram_budget_limits_copied_weights(digits_path: Path) -> None:
    few, many = (
        from_slow_flash(digits_path, optimize="speed", ram_bytes=ram)
        for ram in (4096, 12_288)
    )
    assert (
        few.metadata["workspace_bytes"]
        <= 4096
        < many.metadata["workspace_bytes"]
        <= 12_288
    )
    assert verify(many, samples=2).mismatches == 0


@pytest.mark.qemu
@pytest.mark.deep
def test_models_with_shared_memory_preserve_copied_weights(digits_path: Path) -> None:
    parts = [
        from_slow_flash(digits_path, optimize="speed", name=name) for name in ("a", "b")
    ]
    both = bundle(parts)
    for part in both.parts:
        assert {b.live for b in planned(part).buffers if b.kind == "const"}
    glue = str(both.tree.files["firmware/fwr_app.c"])
    assert "    a_init(&a_pools);\n    b_init(&b_pools);\n" in glue
    image = build_image(both)
    samples = generate_samples(parts[0].module.io.inputs, 2).samples
    reference = run_oracle_reference(parts[0], samples, "litert").outputs
    names = [part.module.name for part in parts]
    with Session(
        open_transport(both.board, image.elf), model_id=bytes.fromhex(both.model_id)
    ) as session:
        for sample, expected in zip(samples, reference, strict=True):
            given = {
                f"{name}/{key}": value
                for name in names
                for key, value in sample.items()
            }
            found = session.run(given)
            for name in names:
                for key, value in expected.items():
                    assert np.array_equal(found[f"{name}/{key}"], value.reshape(-1))


KEYWORD = Path(__file__).parents[2] / "examples/02_keyword/keyword.tflite"
LINE = 32


@pytest.mark.parametrize("pools", [(), (PoolInfo("axi"),)])
def test_buffers_of_dma_share_no_cache_line(pools: tuple[PoolInfo, ...]) -> None:
    """The application may move inputs and outputs by DMA past a data cache."""
    options = Options(board="nucleo-h743zi", numerics="tflm", pools=pools)
    made = planned(compile_model(load_model(KEYWORD).module, options))
    assert any(buffer.size_bytes % LINE for buffer in made.buffers)
    lines = {
        buffer.name: {
            made.placements[buffer.name].offset // LINE,
            (made.placements[buffer.name].offset + buffer.size_bytes - 1) // LINE,
        }
        for buffer in made.buffers
    }
    for buffer in made.buffers:
        if buffer.kind not in ("input", "output"):
            continue
        for other in made.buffers:
            is_kept = other.kind == "state" or {buffer.kind, other.kind} == {
                "input",
                "output",
            }
            if other != buffer and is_kept:
                assert not lines[buffer.name] & lines[other.name], (
                    buffer.name,
                    other.name,
                )
        assert made.placements[buffer.name].offset % LINE == 0


@pytest.mark.deep
@pytest.mark.qemu
def test_a_dma_driver_maintains_the_caches(
    digits_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The emulator has no caches, but the registers by which lines are cleaned."""
    board = load_board("mps2-an521")
    memory = tuple(replace(region, cache_line=LINE) for region in board.memory)
    cached = replace(board, caches=True, memory=memory)
    monkeypatch.setattr("firmwright.pipeline.compilation.load_board", lambda *_: cached)
    model = load_model(digits_path)
    options = Options(board="mps2-an521", target="vanilla")
    done = compile_model(model.module, options, source=model.source)
    padded = [b for b in planned(done).buffers if b.alignment == LINE]
    assert "activation" in {b.kind for b in padded}, (
        "operands of copies and of the accelerator"
    )
    assert {b.size_bytes % LINE for b in padded} == {0}
    image = build_image(done)
    assert "fwr_cache_clean_invalidate" in {
        symbol.name for symbol in image.sizes.symbols
    }
    assert verify(done, samples=3).mismatches == 0


EXTERNAL = 0x80000000
"""The PSRAM of mps2-an521, of which its board file has no pool."""


def external(scope: str = "global", start: int | None = EXTERNAL) -> PoolInfo:
    return PoolInfo("ext", 1 << 20, access="ro", scope=scope, start=start)


@pytest.mark.qemu
def test_constants_are_linked_at_an_address_that_the_user_gives(
    compiled: Compile,
) -> None:
    done = compiled("digits", board="mps2-an521", const_pools=(external(),))
    image = build_image(done)
    used = {region.name: region.used_bytes for region in image.sizes.regions}
    assert used["ext"] > 6000
    assert verify(
        done, samples=1, open_with=lambda what: open_session(what, image=image)
    ).exact
    again = compile_for(parse_module(print_module(done.imported)))
    for path in done.tree.files:
        if path.startswith("model/"):
            assert again.tree.files[path] == done.tree.files[path]


@pytest.mark.parametrize(
    ("start", "problem"),
    [(0x10001000, "ext overlaps code at 0x10001000"), (0xFFFF0000, "above 32 bits")],
)
def test_addresses_of_other_memory_are_refused(
    start: int, problem: str, compiled: Compile
) -> None:
    with pytest.raises(BoardError, match=problem):
        compiled("digits", board="mps2-an521", const_pools=(external(start=start),))


@pytest.mark.parametrize("scope", ["port", "async"])
@pytest.mark.parametrize(
    ("board", "given"),
    [
        pytest.param("host", {"devices": ("cpu0", "cpu1")}, marks=pytest.mark.host_c),
        pytest.param("host", {"target": "vanilla"}, marks=pytest.mark.host_c),
        pytest.param(
            "mps2-an521",
            {"target": "vanilla"},
            marks=[pytest.mark.qemu, pytest.mark.deep],
        ),
    ],
)
def test_other_devices_compute_with_constants_that_a_function_reads(
    board: str, given: dict[str, Any], scope: str, compiled: Compile
) -> None:
    """Constants of an engine with private memory stay in the image: init copies them."""
    pool = external(scope, None if board == "host" else EXTERNAL)
    done = compiled("digits", board=board, const_pools=(pool,), **given)
    placed = {constant.pool for constant in done.module.constants.values()}
    assert placed == ({"", "ext"} if board == "mps2-an521" else {"ext"})
    assert verify(done, samples=1).exact
