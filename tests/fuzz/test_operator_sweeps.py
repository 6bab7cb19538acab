"""The command that sweeps random graphs: its blocks, its report and its result."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from firmwright.base.errors import DoesNotFitError
from tests.fuzz import operator_sweeps
from tests.fuzz.merged_graphs import RandomModel, Sweep
from tests.fuzz.operator_sweeps import GENERATORS, Block, blocks, main, sweep_of


def test_the_graphs_of_a_frontend_are_shared_by_its_generators() -> None:
    counts = dict.fromkeys(GENERATORS, 0)
    for block in blocks(list(GENERATORS), 1000, 40, "host"):
        assert block.seeds[0] >= 40
        counts[block.name] += len(block.seeds)
    for frontend in ("tflite", "onnx"):
        own = [n for name, n in counts.items() if name.startswith(frontend)]
        assert sum(own) == 1000
        assert max(own) - min(own) <= 1


def result_of(block: Block) -> Sweep | str:
    """Return results of each kind instead of a comparison."""
    sweep = sweep_of(block.name, block.board)
    sweep.compared = len(block.seeds)
    match block.seeds[0]:
        case 25:
            sweep.refused_models = 1
            sweep.refused["Conv: groups"] += 2
        case 50:
            sweep.not_computed.append("seed 51: no kernel")
        case 75:
            sweep.differing.append("seed 80: 1 and 2")
        case 100:
            return "seeds 100 to 124: the process ended"
    return sweep


@pytest.mark.parametrize(("graphs", "status"), [(75, 0), (100, 1), (125, 1)])
def test_the_report_names_what_was_not_compared(
    graphs: int,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(operator_sweeps, "run_alone", result_of)
    assert main(["onnx-rare", f"--graphs={graphs}"]) == status
    text = capsys.readouterr().out
    differing = int(graphs > 75)
    assert f"| onnx-rare | {min(graphs, 100)} | 1 | 1 | 0 | {differing} |" in text
    assert "onnx-rare, refused 2 times: Conv: groups" in text
    assert "onnx-rare, not run: seed 51: no kernel" in text
    assert ("onnx-rare, differs: seed 80" in text) == bool(differing)
    assert ("ended: seeds 100 to 124" in text) == (graphs > 100)


def test_many_refusals_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(block: Block) -> Sweep:
        sweep = sweep_of(block.name)
        sweep.compared, sweep.refused_models = 19, 1
        return sweep

    monkeypatch.setattr(operator_sweeps, "run_alone", refused)
    assert main(["onnx-rare", "--graphs=20"]) == 1


def test_models_that_exceed_the_memory_are_compared_in_smaller_images() -> None:
    sizes: list[int] = []

    class Small(Sweep):
        def _compare(self, group: Sequence[RandomModel]) -> None:
            if sum(item.seed for item in group) > 10:
                raise DoesNotFitError("11 of 10 bytes.")
            sizes.append(len(group))

    sweep = Small("litert", lambda seed: b"")
    sweep._compare_parts([RandomModel(seed, None, [], []) for seed in (3, 4, 5, 11)])  # type: ignore[arg-type]
    assert sizes == [2, 1]
    assert sweep.too_large == ["seed 11: 11 of 10 bytes."]
