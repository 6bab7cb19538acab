"""Exit codes, one paragraph on stderr, one object on stdout: in every case."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args

import pytest

import firmwright
from firmwright.artifacts import Variant
from firmwright.base.errors import (
    DoesNotFitError,
    RegionOverflow,
    UnsupportedError,
    UnsupportedItem,
)
from firmwright.bench.model_benchmark import BALANCED
from firmwright.boards import Compiler
from firmwright.boards.flash_tools import FLASH_RUNNERS
from firmwright.cli import boards
from firmwright.cli.boot_loaders import boot_loaders
from firmwright.cli.demo import EMULATED_BOARD
from firmwright.cli.export import export_commands
from firmwright.cli.main import _parser, error_object, to_json_value, verbs
from firmwright.cli.options import describe_verb
from firmwright.cli.quantize import ACTIVATIONS, METHODS
from firmwright.cli.verb_texts import grouped_verbs
from firmwright.cli.verify import DEFAULT_SAMPLES
from firmwright.codegen.emit_options import C_STANDARDS, DEFAULT_LICENSE
from firmwright.device.serial_port import DEFAULT_BAUD
from firmwright.extensions.mlperf.firmware import TASKS
from firmwright.extensions.tune.schedule_search import SearchOptions
from firmwright.extensions.tune.search_strategies import STRATEGIES
from firmwright.flows.measure.profiling import RUNS
from firmwright.flows.model.partition_methods import EAGER
from firmwright.flows.verify.evaluation import LAYERS_COMPARED
from firmwright.package.export_format import export_formats
from firmwright.package.export_input import NO_METADATA
from firmwright.pipeline import C_APIS, NUMERICS, OPTIMIZE_GOALS
from firmwright.pipeline.user_passes import IMPORT_STAGE
from firmwright.report.evaluation import METRICS
from firmwright.usmp.planner_registry import DEFAULT_PLANNER

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(firmwright.__file__).parents[1])}
COMMAND = [sys.executable, "-m", "firmwright"]


def test_every_verb_has_help(fw):
    known = verbs()
    assert {
        "demo",
        "inspect",
        "compile",
        "build",
        "run",
        "verify",
        "profile",
        "bench",
    } <= {*known}
    assert {"show", "selftest", "boards", "targets", "ops", "planners", "test"} <= {
        *known
    }
    for name in known:
        said = fw(name, "--help")
        assert said.status == 0
        assert describe_verb(name)[1:] in " ".join(said.out.split())
        assert said.err == ""


def test_help_groups_every_verb_and_fits_80_columns(fw):
    grouped = [name for names in grouped_verbs().values() for name in names]
    assert sorted(grouped) == sorted(verbs())
    said = fw()
    assert (said.status, said.err) == (0, "")
    assert said.out.startswith("usage: firmwright [options] VERB ...\n")
    for name in grouped:
        assert re.search(rf"^  {name} +\S", said.out, re.MULTILINE)
    assert max(map(len, said.out.splitlines())) <= 80


def test_every_verb_has_examples_that_parse():
    parser = _parser(verbs())
    for name, verb in parser.verbs.items():
        lines = (verb.epilog or "").splitlines()
        assert lines[:1] == ["examples:"], name
        for line in lines[1:]:
            words = shlex.split(line, comments=True)
            assert (words[0], len(line) <= 80) == ("firmwright", True), line
            parser.parse_args(words[1 : words.index(">") if ">" in words else None])
        assert any(line.startswith(f"  firmwright {name}") for line in lines)


def test_every_option_states_its_default():
    for name, parser in _parser(verbs()).verbs.items():
        for action in parser._actions:
            is_flag = action.nargs == 0 or isinstance(action.default, list)
            if action.option_strings and not is_flag and not action.required:
                assert "default: " in (action.help or ""), (name, action.option_strings)


def test_choices_and_defaults_of_options_are_those_of_the_code():
    search = SearchOptions()
    formats_of_commands = [key for key in export_commands() if key[0] != "."]
    expected = {
        ("compile", "c_api"): C_APIS,
        ("compile", "c_standard"): C_STANDARDS,
        ("build", "compiler"): get_args(Compiler),
        ("compile", "numerics"): NUMERICS,
        ("compile", "optimize"): OPTIMIZE_GOALS,
        ("erase", "runner"): FLASH_RUNNERS,
        ("evaluate", "metric"): METRICS,
        ("export", "format"): (*export_formats(), *formats_of_commands),
        ("flash", "runner"): (*FLASH_RUNNERS, *boot_loaders()),
        ("mlperf", "task"): [task.name for task in TASKS],
        ("partition", "optimize"): OPTIMIZE_GOALS,
        ("quantize", "activations"): ACTIVATIONS,
        ("quantize", "method"): METHODS,
        ("run", "variant"): get_args(Variant),
        ("tune", "strategy"): STRATEGIES,
    }
    defaults = {
        ("bench", "modes"): BALANCED,
        ("compile", "license"): DEFAULT_LICENSE,
        ("compile", "partition"): EAGER,
        ("compile", "planner"): DEFAULT_PLANNER,
        ("demo", "board"): EMULATED_BOARD,
        ("evaluate", "compare"): LAYERS_COMPARED,
        ("export", "maintainer"): NO_METADATA.maintainer,
        ("export", "package_version"): NO_METADATA.version,
        ("monitor", "baud"): DEFAULT_BAUD,
        ("profile", "runs"): RUNS,
        ("show", "after"): IMPORT_STAGE,
        ("tune", "per_image"): search.kernels_per_image,
        ("tune", "strategy"): search.strategy,
        ("tune", "trials"): search.trials,
        ("verify", "samples"): DEFAULT_SAMPLES,
    }
    parsers = _parser(verbs()).verbs
    actions = {
        (verb, a.dest): a for verb, parser in parsers.items() for a in parser._actions
    }
    for key, choices in expected.items():
        assert list(actions[key].choices or ()) == list(choices), key
    for key, default in defaults.items():
        assert re.search(
            rf"default: .*\b{re.escape(str(default))}\b", actions[key].help or ""
        ), key


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("verfy", "x"), "there is no verb 'verfy'. Try: firmwright verify."),
        (
            ("qq",),
            "there is no verb 'qq'. Try: firmwright --help, which lists the verbs.",
        ),
        (
            ("verify", "x", "--bord", "y"),
            "verify: unknown option --bord. Try: --board.",
        ),
        (("verify", "x", "--bord=y"), "verify: unknown option --bord. Try: --board."),
        (
            ("build", "x.tflite", "--main", "f.c"),
            "build: unknown option --main. Try: compile MODEL --main FILE.c -o DIR, "
            "then build DIR; --main is of compile.",
        ),
        (
            ("verify", "x", "--q"),
            "verify: unknown option --q. Try: run firmwright verify --help.",
        ),
        (
            ("verify", "x", "--optimize", "sped"),
            "verify: argument --optimize: 'sped' is not one of speed, size, ram, balanced. "
            "Try: speed.",
        ),
        (("ops", "y"), "ops: unexpected argument y. Try: run firmwright ops --help."),
    ],
)
def test_similar_names_are_suggested(fw, words, message):
    assert (fw(*words).status, fw(*words).err) == (2, f"firmwright: {message}\n")


def test_usage_error_is_one_line_with_exit_code_2(fw):
    said = fw("verify")
    assert (said.status, said.out) == (2, "")
    assert said.err == (
        "firmwright: verify: the following arguments are required: MODEL. "
        "Try: run firmwright verify --help.\n"
    )


@pytest.mark.parametrize(
    "words",
    [
        ["verify", "--json"],
        ["--json", "verify"],
        ["--json"],
        ["nonsense", "--json"],
        ["verify", "absent.tflite", "--json"],
        ["verify", "absent.tflite", "--samples", "0", "--json"],
        ["verify", "absent.tflite", "--samples", "many", "--json"],
        ["verify", "absent.tflite", "--board", "no-such-board", "--json"],
        ["compile", "absent.tflite", "--pool", "a b", "--json"],
        ["compile", "absent.tflite", "--numerics", "exact", "--json"],
        ["run", "absent.tflite", "--timeout", "-1", "--json"],
        ["build", "absent", "--json"],
        ["inspect", "absent.tflite", "--json"],
        ["partition", "absent.tflite", "--target", "c", "-o", "x", "--json"],
        ["boards", "--bord", "--json"],
    ],
)
def test_failure_with_json_is_one_object(fw, words):
    said = fw(*words)
    assert said.status == 2
    assert (said.json["schema"], said.json["ok"]) == (1, False)
    assert said.json["verb"] == next((word for word in words if word in verbs()), "")
    assert set(said.json["error"]) == {"code", "what", "where", "hint"}
    assert said.json["error"]["code"] == "usage"


def test_help_with_json_is_one_object(fw):
    said = fw("verify", "--help", "--json")
    assert said.status == 0
    assert said.json["ok"]
    assert "usage: firmwright verify" in said.json["text"]


def test_internal_error_has_exit_code_70_and_traceback(fw, monkeypatch):
    def broken(args):
        raise KeyError("surprise")

    monkeypatch.setattr(boards, "run", broken)
    said = fw("boards", "--json")
    assert said.status == 70
    assert said.json["error"]["code"] == "internal"
    assert said.json["error"]["what"] == "KeyError: 'surprise'."
    assert "Traceback" in said.err


def test_traceback_of_a_usage_error_needs_debug(fw):
    assert "Traceback" not in fw("inspect", "absent.tflite").err
    said = fw("inspect", "absent.tflite", "--debug")
    assert "Traceback" in said.err
    assert said.status == 2


def test_interrupt_exits_cleanly(fw, monkeypatch):
    def interrupted(args):
        raise KeyboardInterrupt

    monkeypatch.setattr(boards, "run", interrupted)
    said = fw("boards")
    assert (said.status, said.out, said.err) == (130, "", "firmwright: interrupted.\n")
    assert fw("boards", "--json").json["error"]["code"] == "interrupted"


def test_options_in_variables_last_for_one_command(fw, monkeypatch):
    seen = []
    monkeypatch.delenv("FIRMWRIGHT_TRUST", raising=False)
    monkeypatch.setattr(
        boards, "run", lambda _: seen.append(os.environ["FIRMWRIGHT_TRUST"])
    )
    fw("boards", "--trust", "renode")
    assert seen[0].endswith("renode")
    assert "FIRMWRIGHT_TRUST" not in os.environ


def test_closed_stdout_is_not_an_error():
    writer = subprocess.Popen(
        [*COMMAND, "ops"],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert writer.stdout is not None
    writer.stdout.close()
    _, said = writer.communicate(timeout=60)
    assert b"Traceback" not in said
    assert b"Exception" not in said


@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="no device that is always full"
)
@pytest.mark.parametrize("words", [["boards"], ["boards", "--json"]])
def test_a_full_disk_is_one_line(words):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, *words],
            env=ENVIRONMENT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 1
    expected = "firmwright: the output cannot be written: No space left on device.\n"
    assert done.stderr == expected


def test_closed_streams_are_not_an_error():
    shell = 'exec "$@" >&- 2>&-'
    for words, status in (["boards"], 0), (["inspect", "missing.tflite"], 2):
        done = subprocess.run(
            ["sh", "-c", shell, "sh", *COMMAND, *words], env=ENVIRONMENT
        )
        assert done.returncode == status


def test_control_characters_are_escaped(fw):
    said = fw("inspect", "a\x1b[31m\u202eb\udcff\x9b\x07.tflite")
    assert said.err.startswith(r"firmwright: a\x1b[31m\u202eb\udcff\x9b\x07.tflite: ")


def test_does_not_fit_error_lists_regions_and_peak():
    error = DoesNotFitError(
        "too large.",
        regions=[RegionOverflow("sram", 5, 4)],
        lowest_bytes=3,
        peak=[("x", 2)],
    )
    found = error_object(error)
    assert found["code"] == "does_not_fit"
    assert found["regions"] == [{"name": "sram", "need_bytes": 5, "have_bytes": 4}]
    assert (found["lowest_bytes"], found["peak"]) == (3, [{"buffer": "x", "bytes": 2}])


def test_unsupported_error_lists_every_place():
    found = error_object(
        UnsupportedError([UnsupportedItem("LSTM", "operator 3", "no state")])
    )
    assert found["items"] == [{"op": "LSTM", "where": "operator 3", "why": "no state"}]


def test_non_finite_numbers_become_null():
    assert to_json_value({"a": [float("nan"), 1.5, float("inf")], "b": (1, None)}) == {
        "a": [None, 1.5, None],
        "b": [1, None],
    }


def _emulators(of: int) -> list[str]:
    """Command lines of the emulators that the process `of` has started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "stat").read_text().rpartition(")")[2].split()
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except (OSError, ProcessLookupError):
                continue
            if int(status[1]) == of and "qemu-system" in line:
                found.append(entry.name)
    return found


@pytest.mark.qemu
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_interrupt_ends_the_emulator(digits_path: Path):
    words = ["run", str(digits_path), "--board", "mps2-an386", "--samples", "20000"]
    # With the interrupt's default action restored: test runners may have it ignored.
    process = subprocess.Popen(
        [*COMMAND, *words],
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        emulators: list[str] = []
        deadline = time.monotonic() + 120
        while not emulators and time.monotonic() < deadline and process.poll() is None:
            emulators = _emulators(process.pid)
            time.sleep(0.05)
        assert emulators
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert said.decode().endswith("firmwright: interrupted.\n")
    assert not any(Path("/proc", pid).exists() for pid in emulators)


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_a_signal_in_a_finalizer_ends_the_command(number: int, status: int) -> None:
    """Python ignores the exception that a signal's handler raises in `__del__`."""
    source = f"""
import os, time
from firmwright.cli import main as cli

class Finalized:
    def __del__(self):
        os.kill(os.getpid(), {int(number)})
        for _ in range(100): pass

def run(*_, **__):
    Finalized()
    time.sleep(20)
    return 0

cli._run = run
raise SystemExit(cli.main(["boards"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", source], timeout=15, capture_output=True
    )
    assert done.returncode == status
    assert b"interrupted" in done.stderr
