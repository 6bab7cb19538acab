"""The benchmark page, from `budgets.csv` (Firmwright) and `peers.csv` in benchmarks/.

`tests/test_bars.py` compares Firmwright's figures with QEMU and rewrites them with
--update-golden.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from bars import Bar, Group, draw
from markdown_pieces import fence, page, table
from pages import ROOT

OURS: Final = {
    "balanced": "Firmwright",
    "ram": "--optimize ram",
    "ram+rows": "ram, --stream-input-rows",
}
"""Our modes and what they are called."""
MODELS: Final = (
    "kws_ref_model",
    "vww_96_int8",
    "pretrainedResnet_quant",
    "ad01_int8",
    "str_ww_ref_model",
)
CMSIS, PLAIN = "TFLM + CMSIS-NN", "TFLM reference kernels"
TINY: Final = "TinyEngine (integer requantise)"
TVM: Final = ("TVM USMP greedy_by_size", "TVM USMP hill_climb", "liveness bound")
PUBLISHED: Final = ("best published", "microTVM + CMSIS-NN")
CORE: Final = "cortex-m4"


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart: names of systems, and each one's value for a model (None: no value)."""

    place: str
    title: str
    systems: tuple[str, ...]
    unit: str
    values: dict[tuple[str, str], int]

    def value(self, model: str, system: str) -> int | None:
        return self.values.get((model, system))

    def svg(self) -> str:
        return draw(self.title, self.systems, [self._group(model) for model in MODELS])

    def _group(self, model: str) -> Group:
        found = [(n, self.value(model, name)) for n, name in enumerate(self.systems)]
        ours = self.value(model, self.systems[0]) or 1
        return Group(
            model,
            tuple(
                Bar(
                    n,
                    value,
                    f"{value:,}" + ("" if n == 0 else f" ({value / ours:.2f} ×)"),
                )
                for n, value in found
                if value is not None
            ),
        )

    def table(self) -> str:
        rows = (
            (f"`{model}`", *(_shown(self.value(model, name)) for name in self.systems))
            for model in MODELS
        )
        heads = (
            f"`{name}`" if name.startswith("--") else name for name in self.systems
        )
        return table(("model", *heads), rows)


def _shown(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


@cache
def _rows(name: str) -> tuple[dict[str, str], ...]:
    with (ROOT / "benchmarks" / name).open(encoding="utf-8") as file:
        return tuple(csv.DictReader(file))


def ours(
    column: str, modes: Sequence[str] = ("balanced",)
) -> dict[tuple[str, str], int]:
    """Return Firmwright's figures for the emulated Cortex-M4."""
    return {
        (row["model"].removesuffix(".tflite"), OURS[row["mode"]]): int(row[column])
        for row in _rows("budgets.csv")
        if row["mode"] in modes
    }


def measured_with() -> str:
    """Return the versions of compiler and emulator behind Firmwright's figures."""
    return "; ".join(
        dict.fromkeys(row["measured_with"] for row in _rows("budgets.csv"))
    )


def theirs(
    peers: Sequence[str], *metrics: str, core: str = CORE
) -> dict[tuple[str, str], int]:
    """Return the peers' figures; several metrics of one system are added."""
    found: dict[tuple[str, str], int] = {}
    for row in _rows("peers.csv"):
        if row["peer"] in peers and row["metric"] in metrics and row["core"] == core:
            key = (row["model"].removesuffix(".tflite"), row["peer"])
            found[key] = found.get(key, 0) + int(row["value"])
    return found


@cache
def charts() -> tuple[Chart, ...]:
    """Return the charts in order."""
    memory = ("balanced", "ram", "ram+rows")
    return (
        Chart(
            "images/bench_time.svg",
            "Instructions of one inference, Cortex-M4",
            (OURS["balanced"], CMSIS, TINY, PLAIN),
            "instructions",
            {**ours("instructions"), **theirs((CMSIS, TINY, PLAIN), "instructions")},
        ),
        Chart(
            "images/bench_memory.svg",
            "Workspace in bytes, Cortex-M4",
            (*OURS.values(), CMSIS, TINY),
            "bytes",
            {
                **ours("workspace_bytes", memory),
                **theirs((CMSIS, TINY), "workspace_bytes"),
            },
        ),
        Chart(
            "images/bench_flash.svg",
            "Flash in bytes: code and constants, Cortex-M4",
            (OURS["balanced"], CMSIS, PLAIN),
            "bytes",
            {
                **ours("flash_bytes"),
                **theirs((CMSIS, PLAIN), "code_flash_bytes", "model_flash_bytes"),
            },
        ),
        Chart(
            "images/bench_plan.svg",
            "Memory plans in bytes: ours whole, TVM's without scratch",
            (OURS["balanced"], *TVM),
            "bytes",
            {**ours("workspace_bytes"), **theirs(TVM, "activation_bytes", core="any")},
        ),
    )


_ABOUT: Final = {
    "images/bench_time.svg": (
        "Executed instructions, not cycles: QEMU has no pipeline "
        "([what that means](reference/instructions-and-cycles.md))."
    ),
    "images/bench_memory.svg": (
        "All memory that a model needs besides its stack: activations, scratch, inputs "
        "and outputs; of TFLM its arena, of TinyEngine its static buffer."
    ),
    "images/bench_flash.svg": (
        "Of ours what the model's kernels and constants take in the image. "
        "Of TFLM its code with the int8 kernels registered, and the model file."
    ),
    "images/bench_plan.svg": (
        "TVM's planners over the same tensors, and the most bytes that are alive at "
        "once if no two tensors may share. Ours has kernels' scratch, inputs and "
        "outputs too, and may put an output over the input that it is computed from: "
        "so it can lie below that."
    ),
}


def benchmarks_page() -> str:
    """Return the text of the page."""
    return page(
        "Benchmarks",
        "`benchmarks/budgets.csv` and `benchmarks/peers.csv`",
        "The five int8 models of MLPerf Tiny. Every figure is from one of the two "
        "tables; how each came about stands at the end of this page. Where a system "
        "has no figure for a model, there is no bar.",
        *(part for chart in charts() for part in _section(chart)),
        "## Cycles on silicon, as published",
        "By others, on a NUCLEO-L4R5ZI. We have not measured on silicon, so nothing of "
        "ours stands beside them, and instructions must not be compared with them.",
        table(("model", *PUBLISHED), _published()),
        "## How each figure was obtained",
        f"Ours: measured by us on `mps2-an386` with {measured_with()} and `-O2`, each "
        "model as `firmwright compile MODEL --board mps2-an386` makes it, in the mode "
        "that stands beside. A test of the project measures them again and fails "
        "where one became worse. This measures and prints them:",
        fence(
            "text", "firmwright bench --models DIR\npytest tests/test_bars.py --deep"
        ),
        "`--update-golden` behind the second writes them to `benchmarks/budgets.csv`; "
        "`scons docs` draws this page anew. Others':",
        table(("system", "core", "figure", "how"), _provenance()),
    )


def _section(chart: Chart) -> Iterator[str]:
    yield f"## {chart.title}"
    yield _ABOUT[chart.place]
    yield f"![{chart.title}]({chart.place})"
    yield chart.table()


def _published() -> Iterator[tuple[str, ...]]:
    known = theirs(PUBLISHED, "cycles")
    for model in MODELS:
        cells = tuple(_shown(known.get((model, peer))) for peer in PUBLISHED)
        if any(cell != "–" for cell in cells):
            yield (f"`{model}`", *cells)


def _provenance() -> Iterator[tuple[str, ...]]:
    """List each measurement method once, in the order of the table."""
    known = {
        (
            row["peer"],
            row["core"],
            row["metric"].replace("_", " "),
            row["obtained"],
        ): None
        for row in _rows("peers.csv")
    }
    yield from known
