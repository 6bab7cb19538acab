"""The figures of peers are read with their origin."""

from pathlib import Path

import pytest

from firmwright.base.errors import UsageError
from firmwright.bench.peer_figures import REFERENCE_PEER, find_figure, read_peers


def test_every_peer_figure_has_its_origin():
    figures = read_peers()
    assert figures
    assert all(figure.obtained and figure.unit and figure.value >= 0 for figure in figures)


def test_peer_figure_is_found_by_model_core_and_metric():
    figures = read_peers()
    expected_entries = {"model": "kws_ref_model.tflite", "core": "cortex-m4"}
    assert find_figure(figures, metric="instructions", **expected_entries) == 7226571
    assert find_figure(figures, metric="nonsense", **expected_entries) is None
    assert any(figure.peer == REFERENCE_PEER for figure in figures)


def test_a_broken_table_is_a_clear_error(tmp_path: Path):
    file = tmp_path / "peers.csv"
    file.write_text("peer,core\nx,y\n")
    with pytest.raises(UsageError, match="the peers' figures cannot be read"):
        read_peers(file)
    with pytest.raises(UsageError, match="cannot be read"):
        read_peers(tmp_path / "absent.csv")
