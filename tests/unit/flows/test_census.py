"""A census gives one entry for each model, whatever happens to it."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from firmwright.base.errors import (
    DoesNotFitError,
    InternalError,
    ReferenceRefusalError,
    ToolFailedError,
)
from firmwright.cli import census as census_verb
from firmwright.cli.census import format_summary
from firmwright.cli.main import main
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import find_model_files
from firmwright.flows.verify import census
from firmwright.flows.verify.census import CensusTask, run_in_process
from firmwright.graph_builder import GraphBuilder
from firmwright.report.census_page import (
    CensusEntry,
    CensusFit,
    CensusStatus,
    render_census,
    sum_entries,
)
from firmwright.targets.registry import features_of_known
from tests.onnx.onnx_models import Net

ROOT = Path(__file__).parents[3]
DIGITS = ROOT / "examples/01_digits/digits.tflite"


def task(**changes: object) -> CensusTask:
    size = DIGITS.stat().st_size
    return replace(
        CensusTask("digits.tflite", str(DIGITS), size, {}, {}, 1, False, 300.0),
        **changes,
    )


@pytest.mark.host_c
def test_models_pass_and_fail_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sub").mkdir()
    shutil.copy(DIGITS, tmp_path / "sub")
    (tmp_path / "broken.tflite").write_bytes(DIGITS.read_bytes()[:300])
    page = tmp_path / "page.html"
    assert (
        main(["census", str(tmp_path), "--samples", "1", "-o", str(page), "--json"])
        == 0
    )
    data = json.loads(capsys.readouterr().out)
    entries = {entry["file"]: entry for entry in data["models"]}
    assert data["counts"] == {"equal": 1, "unreadable": 1}
    assert entries["sub/digits.tflite"]["operators"] == 10
    assert entries["sub/digits.tflite"]["reference"].startswith("LiteRT")
    assert "broken" in entries["broken.tflite"]["reason"]
    assert "sub/digits.tflite" in page.read_text()


@pytest.mark.host_c
def test_the_needs_on_further_boards_are_those_of_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(DIGITS, tmp_path)
    page = tmp_path / "page.html"
    words = ["census", str(tmp_path), "--fit", "microbit,stm32g474re", "--jobs", "1"]
    assert main([*words, "--samples", "1", "-o", str(page), "--json"]) == 0
    fits = json.loads(capsys.readouterr().out)["models"][0]["fits"]
    assert [fit["board"] for fit in fits] == ["microbit", "stm32g474re"]
    assert main(["fit", str(DIGITS), "--board", "microbit", "--json"]) == 0
    alone = json.loads(capsys.readouterr().out)
    for key in ("fits", "workspace_bytes", "flash_bytes", "stack_bytes"):
        assert fits[0][key] == alone[key], key
    assert fits[0]["instructions"] == alone["instructions"]
    assert fits[0]["cycles"] == alone["milliseconds"]["cycles"]
    assert "Needs on boards" in page.read_text()
    entry = CensusEntry("a", 1, "equal", fits=(CensusFit("microbit", True, 64),))
    assert "microbit" in format_summary([entry])


def test_an_unknown_board_ends_a_census_before_it_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(DIGITS, tmp_path)
    assert main(["census", str(tmp_path), "--fit", "microbits"]) == 2
    assert "microbit" in capsys.readouterr().err


def test_a_corrupt_file_is_unreadable(tmp_path: Path) -> None:
    file = tmp_path / "broken.tflite"
    file.write_bytes(b"no model")
    entry = census.examine_model(task(name="broken.tflite", path=str(file)))
    assert entry.status is CensusStatus.UNREADABLE
    assert entry.reason.count("broken.tflite") <= 1


def test_a_hanging_model_ends_with_the_time_limit() -> None:
    entry = run_in_process(task(timeout_s=0.05))
    assert (entry.status, entry.reason) == ("failed", "not finished after 0.05 s")


def test_a_crash_is_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(census.sys, "executable", "false")
    entry = run_in_process(task())
    assert entry.status == "failed"
    assert "ended with status 1" in entry.reason


@pytest.mark.host_c
@pytest.mark.deep
def test_content_replaces_the_file(tmp_path: Path) -> None:
    copy = task(path=str(tmp_path / "absent" / "digits.tflite"))
    assert run_in_process(copy).status == "failed"
    assert run_in_process(replace(copy, content=DIGITS.read_bytes())).status == "equal"


@pytest.mark.qemu
@pytest.mark.deep
def test_a_profile_gives_the_share_of_default_loops() -> None:
    options = {"board": "mps2-an386"}
    entry = census.examine_model(task(with_profile=True, options=options))
    assert entry.unit == "instructions"
    assert entry.count > 50_000
    assert 0 <= entry.slowest_default_share <= entry.default_loops < 0.05
    assert entry.count_per_mac == round(entry.count / entry.macs, 2)


def test_totals_weight_models_by_their_counts() -> None:
    first = CensusEntry(
        "a", 1, "equal", count=900, unit="ns", macs=300, default_loops=0.0
    )
    second = CensusEntry("b", 1, "equal", count=100, macs=100, default_loops=0.9)
    entry = replace(second, slowest_default="mul", slowest_default_share=0.6)
    absent = CensusEntry("c", 1, "too-large", "no room")
    totals = sum_entries([first, entry, absent])
    assert (totals.models, totals.count, totals.default_loops) == (2, 1000, 0.09)
    assert totals.above_limit == 1
    text = format_summary([first, entry, absent])
    assert "mul 60.0 %" in text
    assert "1,000 ns in all, 2.50 for each MAC; 9.0 % in default loops." in text
    assert "c: no room" in text
    assert "mul 60.0 %" in render_census([first, entry, absent], "models", "host")


def test_a_model_beyond_the_memory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def overflow(*_: object, **__: object) -> None:
        raise DoesNotFitError("the workspace does not fit")

    monkeypatch.setattr(census, "compile_for", overflow)
    assert census.examine_model(task()).status == "too-large"


@pytest.mark.parametrize(
    ("statuses", "exit_code", "code"),
    [
        ([CensusStatus.EQUAL, CensusStatus.TOLERANCE], 0, ""),
        ([CensusStatus.EQUAL, CensusStatus.UNSUPPORTED], 2, "unsupported"),
        ([CensusStatus.EQUAL, CensusStatus.UNREADABLE], 2, "bad_model"),
        ([CensusStatus.UNSUPPORTED, CensusStatus.TOO_LARGE], 1, "does_not_fit"),
        ([CensusStatus.UNSUPPORTED, CensusStatus.REFUSED], 1, "tool_failed"),
        ([CensusStatus.FAILED, CensusStatus.TOO_LARGE], 1, "tool_failed"),
        ([CensusStatus.FAILED, CensusStatus.DIFFERS], 1, "mismatch"),
        ([CensusStatus.UNSUPPORTED, CensusStatus.DEFECT], 70, "internal"),
    ],
)
def test_a_strict_census_fails_unless_every_model_is_verified(
    statuses: list[CensusStatus],
    exit_code: int,
    code: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copy(DIGITS, tmp_path)
    entries = [CensusEntry(f"{kind}.onnx", 1, kind, "why") for kind in statuses]
    monkeypatch.setattr(census_verb, "take_census", lambda *_: tuple(entries))
    words = ["census", str(tmp_path), "--json"]
    assert main([*words, "--strict"]) == exit_code
    said = json.loads(capsys.readouterr().out)
    assert said.get("error", {}).get("code", "") == code
    if code == "unsupported":
        item = {"op": "MODEL", "where": "unsupported.onnx", "why": "why"}
        assert said["error"]["items"] == [item]
        assert "1 of 2 models is not supported, first" in said["error"]["what"]
    expected = exit_code if code in ("mismatch", "internal") else 0
    assert main(words) == expected


@pytest.mark.parametrize(
    ("error", "status", "runs"),
    [
        (InternalError("a violated invariant"), CensusStatus.DEFECT, ["litert"]),
        (ZeroDivisionError("of ours"), CensusStatus.DEFECT, ["litert"]),
        (
            ReferenceRefusalError("LiteRT declines"),
            CensusStatus.REFUSED,
            ["litert", "tflm"],
        ),
        (
            ToolFailedError("a text with: refuses this model"),
            CensusStatus.FAILED,
            ["litert", "tflm"],
        ),
    ],
)
def test_a_status_follows_from_the_type_of_the_error(
    error: Exception,
    status: CensusStatus,
    runs: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = []

    def fail(*_: object, **options: object) -> None:
        tried.append(options.get("numerics", "litert"))
        raise error

    monkeypatch.setattr(census, "compile_for", fail)
    assert census.examine_model(task()).status == status
    assert tried == runs


def test_a_census_with_a_defect_ends_with_the_status_of_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(DIGITS, tmp_path)
    entry = CensusEntry("digits.tflite", 1, CensusStatus.DEFECT, "a violated invariant")
    monkeypatch.setattr(
        "firmwright.cli.census.take_census", lambda tasks, executor: (entry,)
    )
    assert main(["census", str(tmp_path)]) == InternalError.exit_code
    output = capsys.readouterr()
    assert "ended in a defect of Firmwright" in output.out
    assert "first digits.tflite" in output.err


def test_a_folder_without_models_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["census", str(tmp_path)]) == 2
    assert "there is no .tflite, .onnx or .pt2 file" in capsys.readouterr().err
    assert main(["census", str(tmp_path / "absent")]) == 2


def test_the_page_escapes_names() -> None:
    entries = [CensusEntry("<b>.tflite", 1, "failed", "<script>")]
    page = render_census(entries, "models", "host")
    assert "<b>.tflite" not in page
    assert "<script>" not in page.split("<body>")[1]


def test_models_are_found_in_subfolders(tmp_path: Path) -> None:
    for name in ("b.tflite", "a/c.onnx", "a/readme.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    assert [path.name for path in find_model_files(str(tmp_path), "**/*")] == [
        "c.onnx",
        "b.tflite",
    ]


@pytest.mark.host_c
def test_shapes_are_for_the_models_that_leave_them_open(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnx")
    for name, shape in (("open", (1, "time")), ("fixed", (1, 3))):
        net = Net()
        x = net.input("x", shape)
        model = net.model(net.node("ReduceSum", x, keepdims=1))
        (tmp_path / f"{name}.onnx").write_bytes(model)
    shutil.copy(DIGITS, tmp_path)
    toml = "[census]\ninput-shape = ['x=1,5', 'another=1,7']\nsamples = 1\n"
    (tmp_path / "firmwright.toml").write_text(toml)
    monkeypatch.chdir(tmp_path)
    assert main(["census", ".", "--json"]) == 0
    models = json.loads(capsys.readouterr().out)["models"]
    statuses = {entry["file"]: entry["status"] for entry in models}
    assert statuses == {
        "digits.tflite": "equal",
        "fixed.onnx": "tolerance",
        "open.onnx": "tolerance",
    }


@pytest.mark.host_c
def test_a_model_that_only_tflm_runs_is_compared_with_tflm() -> None:
    pytest.importorskip("tflite_micro")
    keyword = ROOT / "examples/02_keyword/keyword.tflite"
    entry = census.examine_model(task(path=str(keyword)))
    assert entry.status == "equal"
    assert entry.reference.startswith("TFLM")


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("elements", "share"), [pytest.param(2, 0.0, marks=pytest.mark.deep), (10, 1.0)]
)
def test_kernels_without_a_loop_are_no_default_loops(
    elements: int, share: float
) -> None:
    g = GraphBuilder("net")
    x = g.input("x", (1, elements), scale=0.05)
    model = g.model(g.call("softmax", x, scale=1 / 256, zero_point=-128, beta=1.0))
    compiled = compile_for(model, "mps2-an386", optimize="size")
    assert [operator.schedule for operator in compiled.summary.operators] == ["default"]
    entry = census._profiled(compiled, CensusEntry("net", 1, "equal", macs=1))
    assert entry.default_loops == share


@pytest.mark.parametrize(
    ("board", "counts"),
    [
        ("mps2-an386", set()),
        ("mps3-an547", {"scalar.max_pool2d.inside", "dsp.mul.folded"}),
        ("qemu-riscv32-virt-v", {"scalar.max_pool2d.inside", "rvm.mul.folded"}),
        ("qemu-riscv32-virt-vf", {"scalar.max_pool2d.inside", "rvm.mul.folded"}),
    ],
)
def test_schedules_that_leave_vectors_unused_are_default_loops(
    board: str, counts: set[str]
) -> None:
    g = GraphBuilder("net")
    x = g.input("x", (1, 4), scale=0.05)
    compiled = compile_for(g.model(g.call("relu", x)), board)
    lacking = census._schedules_lacking_vectors(
        features_of_known(compiled.module.targets.values())
    )
    assert counts <= lacking
    assert bool(counts) == bool(lacking)
    assert not [name for name in lacking if name.startswith(("helium", "rvv", "fpu"))]


def test_floats_inside_a_kernel_need_no_vectors_of_integers() -> None:
    g = GraphBuilder("net")
    x = g.input("x", (1, 2, 8, 8), scale=0.05)
    pool = {
        "stride": (2, 2),
        "dilation": (1, 1),
        "before": (0, 0),
        "outputs": (4, 4),
        "kind": "average",
        "size": (2, 2),
        "padded": (),
        "term": "float32(a) * 0.05",
        "final": "int8(a * 20.0)",
    }
    compiled = compile_for(
        g.model(g.call("pool_nd", x, scale=0.05, **pool)), "qemu-riscv32-virt-v"
    )
    (operator,) = compiled.summary.operators
    assert operator.schedule == "soft_float.pool_nd.in_line"
    assert not census._operators_in_default_loops(compiled)


def test_floats_need_no_vectors_of_integers() -> None:
    g = GraphBuilder("net")
    x = g.input("x", (1, 10), "float32")
    model = g.model(g.call("softmax", x, beta=1.0))
    compiled = compile_for(model, "qemu-riscv32-virt-v")
    (operator,) = compiled.summary.operators
    assert operator.schedule == "soft_float.softmax.exponentials"
    assert not census._operators_in_default_loops(compiled)
