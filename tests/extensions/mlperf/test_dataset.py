"""The data set is read, or refused with a clear message."""

from pathlib import Path

import pytest

from firmwright.base.errors import UsageError
from firmwright.extensions.mlperf.benchmark import read_dataset
from firmwright.extensions.mlperf.firmware import TASKS

KWS, AD = TASKS[0], TASKS[3]


def test_file_with_several_windows(tmp_path: Path):
    (tmp_path / "a.bin").write_bytes(bytes(2560 + 2 * 512))
    (tmp_path / "y_labels.csv").write_text(
        "a.bin, 2, 1, 2560, 512\n\n", encoding="utf-8"
    )
    (sample,) = read_dataset(tmp_path, AD)
    assert (sample.label, [len(window) for window in sample.windows]) == (1, [2560] * 3)


@pytest.mark.parametrize(
    ("labels", "what"),
    [
        (None, "the data set has no y_labels.csv"),
        ("", "holds no sample"),
        ("b.bin, 12, 1", "b.bin cannot be read"),
        ("a.bin, 12", "'a.bin, 12' or its file does not fit".replace(", ", ",")),
        ("a.bin, 12, x", "does not fit"),
        ("a.bin, 12, 1, 490, 0", "does not fit"),
        ("short.bin, 12, 1", "3 bytes in windows of 3, samples have 490"),
    ],
)
def test_invalid_data_sets_are_refused(labels: str | None, what: str, tmp_path: Path):
    (tmp_path / "a.bin").write_bytes(bytes(490))
    (tmp_path / "short.bin").write_bytes(bytes(3))
    if labels is not None:
        (tmp_path / "y_labels.csv").write_text(labels, encoding="utf-8")
    with pytest.raises(UsageError, match=what):
        read_dataset(tmp_path, KWS)
