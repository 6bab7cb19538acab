"""What terminals see: colors, tables in 80 columns, progress, shell completion."""

import io
import logging
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

import firmwright
from firmwright.base.progress_log import ProgressLog
from firmwright.cli.printing import colorize, has_colors
from firmwright.cli.progress import TimeLeft, count_in, show_progress
from firmwright.cli.text_table import format_pairs, format_table

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(firmwright.__file__).parents[1])}
COMMAND = [sys.executable, "-m", "firmwright"]


def on_terminal(*words: str, **environment: str) -> str:
    """Return what a command prints to a terminal, on stdout and stderr."""
    master, worker = pty.openpty()
    settings = {**ENVIRONMENT, "TERM": "xterm", "COLUMNS": "80", **environment}
    with subprocess.Popen(
        [*COMMAND, *words], env=settings, stdout=worker, stderr=worker
    ):
        os.close(worker)
        parts = []
        try:
            while part := os.read(master, 65536):
                parts.append(part)
        except OSError:  # the end, on Linux
            pass
    os.close(master)
    return b"".join(parts).decode()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_terminals_get_colors_unless_they_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert has_colors(Terminal())
    assert not has_colors(io.StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not has_colors(Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not has_colors(Terminal())


def test_json_has_no_colors(fw, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("firmwright.cli.printing.has_colors", lambda stream: True)
    assert "\033[1mfirmwright:\033[0m there is no" in fw("verfy").err
    assert "\033" not in fw("verfy", "--json").out


def test_heads_bars_and_verdicts_have_colors():
    table = colorize("a  b\n─  ──\n1  ██")
    assert table == "\033[1ma  b\033[0m\n─  \033[2m──\033[0m\n1  \033[36m██\033[0m"
    assert colorize("x: bit-exact: all") == "x: \033[32mbit-exact\033[0m: all"


def test_wide_tables_are_wrapped_at_separators():
    rows = [
        ["model/block_1/depthwise_conv2d/Relu6;model/block_1/BiasAdd", 12, "word " * 30]
    ]
    lines = format_table(["operator", "count", "text"], rows).splitlines()
    assert max(map(len, lines)) == 80
    joined = "".join(line[: lines[1].index("  ")].strip() for line in lines[2:])
    assert joined == rows[0][0]
    pairs = format_pairs([("flags", "-O2 " * 40), ("path", "/x" * 60)]).splitlines()
    assert max(map(len, pairs[:-2])) <= 80
    assert pairs[-1].endswith("/x" * 60)


@pytest.mark.parametrize(
    "verb", ["boards", "ops", "targets", "backends", "planners", "doctor"]
)
def test_lists_fit_80_columns(fw, verb: str):
    assert max(map(len, fw(verb).out.splitlines())) <= 80


def test_counts_in_messages_fill_the_bar():
    assert count_in("mps2: sample 3 of 1,000") == (3, 1000)
    assert count_in("building") is None


def test_messages_of_long_tasks_say_how_much_time_is_left() -> None:
    now = 100.0
    left = TimeLeft(clock=lambda: now)
    assert left.after("sample 1 of 1,000") == ""
    now += 1
    assert left.after("sample 101 of 1,000") == ", about 9 s left"
    assert left.after("building") == ""
    now += 7.5
    assert left.after("sample 901 of 1,000") == ""
    assert left.after("1 of 8 rows") == ""
    now += 60
    assert left.after("2 of 8 rows") == ", about 6 min left"


def test_a_loop_logs_its_progress_once_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 0.0
    with caplog.at_level(logging.INFO):
        progress = ProgressLog(logging.getLogger(), "sample", 9, clock=lambda: now)
        for done in range(9):
            progress.show(done)
            now += 0.4
    assert caplog.messages == ["sample 3 of 9", "sample 6 of 9"]


def test_progress_is_a_bar_on_terminals_and_lines_on_dumb_ones(digits_path: Path):
    words = ("compile", str(digits_path))
    assert "\033[?25l" in on_terminal(*words)
    assert on_terminal(*words, TERM="dumb").startswith("compiling digits for host\r\n")


def test_the_shell_completes_choices(tmp_path: Path):
    pytest.importorskip("argcomplete")
    line = "firmwright compile --optimize s"
    settings = {
        **ENVIRONMENT,
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "_ARGCOMPLETE_STDOUT_FILENAME": str(tmp_path / "words"),
    }
    subprocess.run([sys.executable, "-m", "firmwright"], env=settings, check=True)
    assert (tmp_path / "words").read_text().split("\n") == ["speed", "size"]


def test_warnings_marked_once_appear_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FIRMWRIGHT_CACHE", str(tmp_path))
    log = logging.getLogger("firmwright.frontends")
    for _ in range(2):
        with show_progress(quiet=False, verbose=False):
            log.warning("net.onnx: the batch size", extra={"once": True})
            log.warning("a warning")
    printed = ["net.onnx: the batch size", "a warning", "a warning"]
    assert capsys.readouterr().err.splitlines() == printed
