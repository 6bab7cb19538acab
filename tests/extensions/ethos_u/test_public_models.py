"""The figures of benchmarks/ethos_u.csv: public models, bit-exact in QEMU."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from firmwright.extensions.ethos_u import vela
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.verify.verification import verify
from firmwright.ir.core import PoolInfo
from firmwright.ir.graph.devices import CYCLES_ATTR
from firmwright.targets.registry import parse_target

ROOT = Path(__file__).resolve().parents[3]
with (ROOT / "benchmarks" / "ethos_u.csv").open(encoding="utf-8", newline="") as file:
    ROWS = tuple(csv.DictReader(file))
PAGE = ROOT / "docs" / "reference" / "ethos-u.md"
NPUS = ("ethos-u55-128", "ethos-u65-256")
FIGURES = ("cycles", "arena_bytes", "constants_bytes")


def test_the_page_has_the_figures() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in dict.fromkeys(row["model"] for row in ROWS):
        one = {
            (row["npu"], row["numerics"]): row for row in ROWS if row["model"] == name
        }
        on_npu = [one[NPUS[0], numerics]["on_npu"] for numerics in ("litert", "tflm")]
        cells = [name, *on_npu, one[NPUS[0], "tflm"]["operators"]]
        cells += [
            f"{int(one[npu, 'tflm'][figure]):,}" for npu in NPUS for figure in FIGURES
        ]
        assert f"| {' | '.join(cells)} |" in text


@pytest.mark.deep
@pytest.mark.qemu
@pytest.mark.models
@pytest.mark.parametrize(
    "row", ROWS, ids=lambda row: f"{row['file']}-{row['npu']}-{row['numerics']}"
)
def test_a_model_has_these_figures(
    row: dict[str, str], model_path: Callable[[str], Path], tmp_path: Path
) -> None:
    """Files of models outside MLPerf Tiny are named by the SHA-256, in `census`."""
    pytest.importorskip(
        "ethosu.vela", reason="needs Vela (pip install 'firmwright[ethos-u]')"
    )
    folder, npu = model_path("kws_ref_model.tflite").parent, row["npu"]
    paths = (folder / row["file"], folder.parent / "census" / row["file"])
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        pytest.skip(f"{row['model']} is not at {paths[1]}")
    model = load_model(path)
    options = {"numerics": row["numerics"], "pools": (PoolInfo("isram"),)}
    compiled = compile_for(model, "mps3-an547", target=npu, **options)
    config = (
        str(parse_target(npu).attr(name)) for name in ("system-config", "memory-mode")
    )
    vela.run_vela(path.read_bytes(), vela.VelaOptions(npu, *config), tmp_path, "tflite")
    with next(tmp_path.glob("*_summary_*.csv")).open(encoding="utf-8") as own:
        vela_arena = round(1024 * float(next(csv.DictReader(own))["sram_memory_used"]))
    summary, operators = compiled.summary, sum(len(g.body) for g in model.module.graphs)
    cycles = (f.attrs.get(CYCLES_ATTR, 0) for f in compiled.module.functions.values())
    figures = {
        "operators": operators,
        "on_npu": operators - len(summary.rejections),
        "cycles": sum(int(str(count)) for count in cycles),
        "arena_bytes": summary.workspace_bytes,
        "vela_arena_bytes": vela_arena,
        "constants_bytes": summary.constants_bytes,
    }
    assert figures == {name: int(row[name]) for name in figures}
    assert verify(compiled, samples=2).exact
