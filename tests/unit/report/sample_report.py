"""A sample report with two pools and a buffer with two live ranges."""

from dataclasses import replace
from typing import Any

from firmwright.artifacts import ImageRegionUsage, SectionSize
from firmwright.compilation_summary import PlannedBuffer
from firmwright.report.model import BuildReport, OperatorReport, PoolUsage, StackReport


def buffer(
    name: str, offset: int, size: int, *live: tuple[int, int], **more: str
) -> PlannedBuffer:
    kind, pool = more.get("kind", "activation"), more.get("pool", "sram")
    return PlannedBuffer(name, kind, pool, offset, size, alignment=16, live=live)


def operator(index: int, kind: str, count: int, **more: Any) -> OperatorReport:
    span = f"m.tflite: operator {index}"
    facts = OperatorReport(
        index, f"t{index}", kind, span, "dsp.it", 100, count, count, None, 40, 60
    )
    return replace(facts, **more)


def make_report(**changed: Any) -> BuildReport:
    """Return a report without findings, with some fields changed."""
    report = BuildReport(
        model="m",
        board="b",
        core="cortex-m4",
        target="cortex-m",
        numerics="litert",
        optimize="balanced",
        compiler="gcc -O2",
        tool_version="1",
        model_id="00" * 16,
        unit="instructions",
        total=1000,
        resolution=40,
        workspace_bytes=160,
        lower_bound_bytes=160,
        constants_bytes=120,
        flash_bytes=5000,
        ram_bytes=700,
        model_flash_bytes=1000,
        model_ram_bytes=160,
        stack=StackReport(100, 300, 200, 4096, ("fwr_reset_handler", "main", "m_run")),
        pools=(PoolUsage("sram", 96, 1000), PoolUsage("fast", 64, None)),
        buffers=(
            buffer("in", 0, 64, (0, 1), kind="input"),
            buffer("a", 32, 64, (0, 2)),
            buffer("b<c", 0, 16, (0, 1), (2, 3)),
            buffer("s", 0, 64, (1, 2), kind="scratch", pool="fast"),
        ),
        operator_by_time=(0, -1, 2),
        operators=(operator(0, "conv2d", 600), operator(2, "softmax", 400)),
        sections=(
            SectionSize(".text", 0, 3000, "text"),
            SectionSize(".rodata", 3000, 2000, "rodata"),
        ),
        regions=(ImageRegionUsage("code", 5000, 100_000),),
    )
    return replace(report, **changed)
