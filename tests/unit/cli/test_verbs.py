"""Each verb's keys as scripts rely on them, and its files."""

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[3]


def test_boards_targets_ops_and_planners_are_listed(fw):
    boards = fw("boards", "--json").json["boards"]
    assert {"name", "core", "validation", "flash_bytes", "ram_bytes"} <= set(boards[0])
    assert {"host", "mps2-an386", "stm32vldiscovery"} <= {
        board["name"] for board in boards
    }
    ops = fw("ops", "--json").json["operators"]
    assert {"name", "tflite", "dtypes", "schedules", "limits"} <= set(ops[0])
    assert {"conv2d": ["CONV_2D"]}.items() <= {
        op["name"]: op["tflite"] for op in ops
    }.items()
    assert fw("planners", "--json").json["default"] == "search"
    assert "cortex-m" in {
        kind["kind"] for kind in fw("targets", "--json").json["targets"]
    }
    for verb in ("boards", "ops", "planners", "targets"):
        said = fw(verb)
        assert (said.status, said.err) == (0, "")
        assert "──" in said.out


def test_inspect_shows_tensors_operators_and_cost(fw, digits_path: Path):
    found = fw("inspect", digits_path, "--json").json
    assert found["supported"]
    assert found["inputs"][0]["name"] == "image"
    assert found["inputs"][0]["shape"] == [1, 8, 8, 1]
    assert found["macs"] == 73472
    assert [op["kind"] for op in found["operators"]][:2] == [
        "conv2d",
        "depthwise_conv2d",
    ]
    assert "image: int8 1x8x8x1, scale" in fw("inspect", digits_path).out


def test_inspect_tells_that_transposes_may_cancel(fw, digits_path: Path):
    onnx_model = Path(__file__).parents[3] / "examples/03_pytorch/digits.onnx"
    assert "Transposes that cancel" in fw("inspect", onnx_model).out
    assert "Transposes that cancel" not in fw("inspect", digits_path).out


def test_inspect_shows_what_is_unsupported_and_why(
    fw, tmp_path: Path, digits_path: Path
):
    # MAX_POOL_2D (17) becomes RANK (110): the container is sound, the meaning is gone.
    data = bytearray(digits_path.read_bytes())
    place = _operator_code(data, 17)
    data[place] = 110
    model = tmp_path / "strange.tflite"
    model.write_bytes(bytes(data))
    said = fw("inspect", model, "--json")
    assert said.status == 0
    assert not said.json["supported"]
    assert {item["op"] for item in said.json["unsupported"]} == {"RANK"}
    assert "node 3" in said.json["unsupported"][0]["where"]
    assert len(said.json["operators"]) == 10
    failed = fw("compile", model, "--json")
    assert failed.status == 2
    assert failed.json["error"]["code"] == "unsupported"
    assert failed.json["error"]["items"] == said.json["unsupported"]
    assert "With --strict, inspect fails" in fw("inspect", model).out
    strict = fw("inspect", model, "--strict", "--json")
    assert strict.status == 2
    assert strict.json["error"]["code"] == "unsupported"
    assert strict.json["operators"] == said.json["operators"]
    assert fw("inspect", digits_path, "--strict").status == 0


def _operator_code(data: bytearray, code: int) -> int:
    """Return the file offset of the operator code, the first field of OperatorCode."""
    from ai_edge_litert import schema_py_generated as schema

    model = schema.Model.GetRootAsModel(bytes(data), 0)
    for index in range(model.OperatorCodesLength()):
        found = model.OperatorCodes(index)
        assert found is not None
        if found.DeprecatedBuiltinCode() == code:
            builtin = found._tab.Offset(10)
            if builtin:
                data[found._tab.Pos + builtin] = 110
            return found._tab.Pos + found._tab.Offset(4)
    raise AssertionError(f"no operator code {code}")


def test_compile_without_output_says_that_nothing_is_written(fw, digits_path: Path):
    last = fw("compile", digits_path).out.splitlines()[-1]
    assert last.split(maxsplit=1) == ["project", "not written; add -o DIR"]


def test_compile_writes_a_project_and_reports_its_sizes(
    fw, tmp_path: Path, digits_path: Path
):
    out = tmp_path / "out"
    found = fw(
        "compile", digits_path, "--board", "mps2-an386", "-o", out, "--json"
    ).json
    keys = "workspace_bytes lower_bound_bytes scratch_bytes pools constants_bytes operators"
    assert {*keys.split(), "optimality_gap_bytes", "compile_seconds"} <= set(found)
    assert found["workspace_bytes"] == sum(
        pool["bytes"] for pool in found["pools"].values()
    )
    assert {"bytes", "limit_bytes", "access"} == set(found["pools"]["sram"])
    assert {"name", "kind", "macs", "schedule"} <= set(found["operators"][0])
    files = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert {
        "SConstruct",
        "metadata.json",
        "model/digits.c",
        "firmware/fwr_app.c",
    } <= files


def test_compile_places_constants_in_given_pools(fw, tmp_path: Path, digits_path: Path):
    words = (
        "compile",
        digits_path,
        "--board",
        "mps2-an386",
        "--const-pool",
        "code=2000",
    )
    said = fw(*words, "--const-pool", "psram=0x10000:async", "-o", tmp_path / "out")
    assert said.status == 0
    assert re.search(r"constants +[\d,]+ bytes \(code [\d,]+, psram [\d,]+\)", said.out)
    found = fw(*words, "--const-pool", "psram:external", "--json").json
    near, far = found["pools"]["code"], found["pools"]["psram"]
    assert (near["limit_bytes"], near["access"], near["scope"]) == (
        2000,
        "ro",
        "global",
    )
    assert (far["limit_bytes"], far["scope"]) == (1 << 24, "external")
    assert found["workspace_bytes"] == found["pools"]["sram"]["bytes"]
    assert (tmp_path / "out" / "model" / "digits_psram.bin").stat().st_size > 2500
    said = fw(*words, "--const-pool", "psram:flash")
    assert said.status == 2
    assert (
        "unknown access mode 'flash' (choose from linked, external, port, async)"
        in said.err
    )
    said = fw(*words)
    assert said.status == 1
    assert "the constants do not fit: they need" in said.err


def test_compile_twice_gives_the_same_bytes(fw, tmp_path: Path, digits_path: Path):
    for name in ("one", "two"):
        assert fw("compile", digits_path, "-o", tmp_path / name).status == 0
    one = {
        p.relative_to(tmp_path / "one"): p
        for p in (tmp_path / "one").rglob("*")
        if p.is_file()
    }
    for relative, path in one.items():
        assert path.read_bytes() == (tmp_path / "two" / relative).read_bytes()


def test_compile_refuses_to_overwrite_other_folders(
    fw, tmp_path: Path, digits_path: Path
):
    (tmp_path / "thesis.txt").write_text("years of work")
    said = fw("compile", digits_path, "-o", tmp_path)
    assert said.status == 2
    assert "holds no firmwright project" in said.err
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_compile_prints_passes_and_modules(fw, tmp_path: Path, digits_path: Path):
    dump = tmp_path / "dump"
    words = (
        "--print-pipeline",
        "--print-after",
        "usmp",
        "--dump-dir",
        dump,
        "--verify-passes",
    )
    said = fw("compile", digits_path, *words)
    assert said.status == 0
    assert any(line.split()[:2] == ["usmp", "all"] for line in said.out.splitlines())
    assert 'plan "search"' in said.out
    dumps = sorted(path.name for path in dump.iterdir())
    assert dumps[0].startswith("00-")
    assert any(name.endswith("-usmp.fwir") for name in dumps)
    assert fw("compile", digits_path, "--print-after", "nonsense").status == 2


def test_show_prints_a_module_for_other_verbs(fw, tmp_path: Path, digits_path: Path):
    text = fw("show", digits_path, "--after", "import", "--elide-constants").out
    assert text.startswith("firmwright ir 2\nmodule @digits\n")
    assert "data {" not in text
    file = tmp_path / "planned.fwir"
    assert fw("show", digits_path, "--after", "usmp", "-o", file).status == 0
    whole = fw("compile", digits_path, "--json").json
    rest = fw("compile", file, "--trust", file, "--json").json
    assert whole["model_id"] == rest["model_id"]
    assert fw("inspect", file, "--json").json["stage"] == "usmp"


def test_partition_writes_a_file_for_a_target(fw, tmp_path: Path, digits_path: Path):
    file = tmp_path / "m4.fwir"
    target = "cortex-m -mcpu=cortex-m4"
    said = fw("partition", digits_path, "--target", target, "-o", file, "--json")
    assert said.json["targets"] == [
        {"target": target, "operators": 10, "functions": []}
    ]
    assert fw("compile", file, "--json").json["target"] == {"cpu": target}


@pytest.mark.host_c
def test_build_reports_image_sizes(fw, tmp_path: Path, digits_path: Path):
    out = tmp_path / "out"
    found = fw("build", digits_path, "-o", out, "--json").json
    keys = "elf flash_bytes ram_bytes model_flash_bytes model_ram_bytes stack_bytes"
    assert {*keys.split(), "firmware_stack_bytes"} <= set(found)
    in_all = found["model_ram_bytes"] + found["stack_bytes"]
    assert found["model_ram_with_stack_bytes"] == in_all
    assert Path(found["elf"]).is_file()
    again = fw("build", out, "--json").json
    assert again["model_flash_bytes"] == found["model_flash_bytes"]
    assert fw("build", out, "--board", "microbit").status == 2
    assert fw("build", out, "--numerics", "tflm").status == 2


@pytest.mark.host_c
def test_run_reads_and_writes_arrays(fw, tmp_path: Path, digits_path: Path):
    inputs = digits_path.with_name("digits_test.npz")
    out = tmp_path / "out.npz"
    said = fw("run", digits_path, "--input", inputs, "--output", out, "--json")
    assert said.json["outputs"] == {"digit": {"dtype": "int8", "shape": [360, 1, 10]}}
    labels = np.load(digits_path.with_name("digits_labels.npy"))
    with np.load(out) as archive:
        answers = np.argmax(archive["digit"][:, 0], axis=-1)
    assert np.mean(answers == labels) > 0.99
    library = tmp_path / "library.npz"
    words = ("run", digits_path, "--in-process", "--input", inputs, "--output", library)
    assert fw(*words).status == 0
    assert library.read_bytes() == out.read_bytes()
    assert fw("run", digits_path).status == 2
    assert fw("run", digits_path, "--samples", 1, "--input", inputs).status == 2


@pytest.mark.host_c
def test_verify_reports_bit_exactness_or_the_first_difference(
    fw, tmp_path: Path, digits_path: Path
):
    found = fw("verify", digits_path, "--samples", 4, "--json").json
    keys = "model board numerics reference samples mismatches max_abs_error"
    assert {*keys.split()} <= set(found)
    assert (found["samples"], found["mismatches"], found["max_abs_error"]) == (4, 0, 0)
    assert found["reference"].startswith("LiteRT BUILTIN_REF ")
    out = tmp_path / "out.npz"
    assert fw("run", digits_path, "--samples", 4, "--output", out).status == 0
    assert fw("verify", digits_path, "--expect", out).out.startswith(
        "digits on host: bit-exact: all 40 values of 4 samples equal the recorded outputs."
    )
    with np.load(out) as archive:
        changed = archive["digit"].copy()
    changed[2, 0, 7] ^= 1
    np.savez(out, digit=changed)
    said = fw("verify", digits_path, "--expect", out)
    assert (said.status, said.out) == (1, "")
    assert "1 of 40 values differ from the recorded outputs, by at most 1" in said.err
    assert "digit[0, 7] of sample 2" in said.err
    failed = fw("verify", digits_path, "--expect", out, "--json").json
    assert (failed["ok"], failed["error"]["code"], failed["mismatches"]) == (
        False,
        "mismatch",
        1,
    )


@pytest.mark.qemu
@pytest.mark.deep
def test_profile_instruction_counts_are_reproducible(
    fw, tmp_path: Path, digits_path: Path
):
    said = fw("profile", digits_path, "--board", "mps2-an386", "--json")
    found = said.json
    keys = "instructions cycles resolution operators probe_overhead stack_bytes"
    assert {*keys.split()} <= set(found)
    assert found["cycles"] is None
    assert found["resolution"] == 40
    assert {"name", "kind", "macs", "instructions", "cycles"} <= set(
        found["operators"][0]
    )
    numbers = [operator["index"] for operator in found["operators"]]
    assert numbers == [0, 1, 2, 3, 4, 5, 6, 8, 9], (
        "as in the model's C; operator 7 is a view"
    )
    parts = sum(operator["instructions"] for operator in found["operators"])
    assert (
        0.9 * found["instructions"]
        < parts
        <= found["instructions"] + found["probe_overhead"]
    )
    old = tmp_path / "old.json"
    old.write_text(said.out)
    words = (
        "profile",
        digits_path,
        "--board",
        "mps2-an386",
        "--baseline",
        old,
        "--json",
    )
    trace, data = tmp_path / "trace.json", tmp_path / "data.json"
    change = fw(*words, "--trace", trace, "--node-data", data).json["baseline"]
    counts = {row["name"]: row["instructions"] for row in found["operators"]}
    events = json.loads(trace.read_text())["traceEvents"]
    # The fields that the Trace Event Format requires of metadata and complete events.
    required = {
        "M": {"name", "pid", "args"},
        "X": {"name", "cat", "pid", "tid", "ts", "dur"},
    }
    assert all(required[e["ph"]] <= e.keys() for e in events)
    assert all(
        isinstance(e["pid"], int) and e.get("ts", 0) >= 0 <= e.get("dur", 0)
        for e in events
    )
    spans = [e for e in events if e["ph"] == "X"]
    assert [(e["name"], round(25 * e["dur"])) for e in spans] == list(counts.items())
    assert all(
        a["ts"] + a["dur"] == pytest.approx(b["ts"])
        for a, b in itertools.pairwise(spans)
    )
    values = json.loads(data.read_text())["results"]
    assert {name: row["value"] for name, row in values.items()} == counts
    assert (change["total"], change["mismatched_conditions"]) == (0, [])
    assert (found["runs"], found["least"]) == (1, found["instructions"])
    assert found["clock_hz"] == 25_000_000
    assert "-mcpu=cortex-m4" in found["flags"]
    assert 0 < found["stack_bytes"] < found["stack_reserve_bytes"]
    assert [pool["name"] for pool in found["pools"]] == ["sram"]
    assert {row["change"] for row in change["operators"]} == {0}


@pytest.mark.host_c
def test_profile_on_the_host_has_neither_instructions_nor_cycles(fw, digits_path: Path):
    said = fw("profile", digits_path, "--runs", "3", "--json")
    found = said.json
    assert (found["runs"], found["clock_hz"]) == (3, None)
    assert 0 < found["least"] <= found["nanoseconds"] <= found["most"]
    assert found["least"] <= found["mean"] <= found["most"]
    assert all(row["least"] <= row["nanoseconds"] for row in found["operators"])
    assert (found["instructions"], found["cycles"], found["stack_bytes"]) == (
        None,
        None,
        None,
    )
    assert found["nanoseconds"] > 0
    assert fw("profile", digits_path, "--in-process").status == 2
    assert fw("profile", digits_path, "--runs", "0").status == 2


def test_invalid_profile_baseline_is_a_usage_error(
    fw, tmp_path: Path, digits_path: Path
):
    file = tmp_path / "old.json"
    for text in ("no json", "[]", "{}"):
        file.write_text(text)
        assert fw("profile", digits_path, "--baseline", file).status == 2


@pytest.mark.qemu
def test_model_that_does_not_fit_is_reported(fw, tmp_path: Path):
    model = tmp_path / "relu.fwir"
    model.write_text(
        "firmwright ir 2\nmodule @net\n"
        "graph @main(%x: i8[1,64] quant(0.1, 0)) -> (%y) {\n"
        "  %y: i8[1,64] quant(0.1, 0) = relu(%x)\n}\n"
    )
    said = fw("verify", model, "--board", "mps2-an386", "--ram", 10, "--json")
    assert said.status == 1
    error = said.json["error"]
    assert error["code"] == "does_not_fit"
    (region,) = error["regions"]
    assert region["need_bytes"] > region["have_bytes"]
    assert error["peak"]


@pytest.mark.host_c
def test_selftest_counts_its_cases(fw):
    found = fw("selftest", "--op", "relu6", "--samples", 3, "--json").json
    assert found["cases"] == found["passed"] > 0
    assert (found["failed"], found["skipped"]) == ([], [])


@pytest.mark.host_c
def test_demo_json_has_all_figures(fw):
    found = fw("demo", "--board", "host", "--json").json
    keys = (
        "accuracy mismatches reference workspace_bytes model_flash_bytes operators elf"
    )
    assert {*keys.split()} <= set(found)
    assert found["board"] == "host"
    assert found["accuracy"] == pytest.approx(358 / 360)


@pytest.mark.qemu
def test_bench_compares_with_the_peers(fw, tmp_path: Path, digits_path: Path):
    table = tmp_path / "bench.csv"
    words = ("bench", digits_path, "--boards", "mps2-an386", "--write", table, "--json")
    (row,) = fw(*words).json["rows"]
    keys = "model board instructions workspace_bytes model_flash_bytes stack_bytes compile_seconds"
    assert {*keys.split(), "rival", "ratio"} <= set(row)
    lines = table.read_text().splitlines()
    assert lines[0].startswith("model,board,core,mode,unit,count,")
    assert lines[1].startswith(
        "digits.tflite,mps2-an386,cortex-m4,balanced,instructions,"
    )
    assert len(lines) == 2


@pytest.mark.deep
@pytest.mark.qemu
def test_bench_models_cycles_with_the_memories_of_a_chip(fw, digits_path: Path):
    emulated = "mps2-an386,nucleo-l4r5zi"
    fast, slow = fw(
        "bench", digits_path, "--cycles", "--boards", emulated, "--json"
    ).json["rows"]
    assert fast["instructions"] < fast["modeled_cycles"] < slow["modeled_cycles"]
    low, high = slow["silicon_range"]
    assert low < slow["modeled_cycles"] < high


def test_several_models_share_one_firmware_and_its_memory(
    fw, tmp_path: Path, digits_path: Path
):
    twin, out = tmp_path / "twin.tflite", tmp_path / "out"
    twin.write_bytes(digits_path.read_bytes())
    apart = fw("compile", digits_path, twin, "--concurrent", "--json").json
    assert [model["model"] for model in apart["models"]] == ["digits", "twin"]
    alone = apart["workspace_bytes"] // 2
    said = fw("compile", digits_path, twin, "-o", out).out
    found = json.loads((out / "metadata.json").read_text(encoding="utf-8"))
    assert alone < found["workspace_bytes"] <= alone + 64 + 16, (
        "an input and an output are kept"
    )
    assert f"{found['workspace_bytes']:,} bytes, shared" in said
    assert (out / "model" / "shared_constants.c").is_file()


@pytest.mark.host_c
def test_build_takes_several_models_and_names(fw, tmp_path: Path, digits_path: Path):
    names = ("--name", "first,second")
    data = fw(
        "build", digits_path, digits_path, *names, "-o", tmp_path / "out", "--json"
    ).json
    assert Path(data["elf"]).is_file()
    found = json.loads((tmp_path / "out" / "metadata.json").read_text(encoding="utf-8"))
    assert [model["model"] for model in found["models"]] == ["first", "second"]
    assert (tmp_path / "out" / "model" / "second.h").is_file()
    scons = [sys.executable, "-m", "SCons", "-h"]
    for folder in (tmp_path / "out", ROOT):
        said = subprocess.run(
            scons, cwd=folder, capture_output=True, text=True, check=True
        ).stdout
        assert ("scons profile" if folder != ROOT else "scons check") in said


def test_single_model_options_are_refused_for_several(fw, digits_path: Path):
    said = fw("compile", digits_path, digits_path, "--name", "one")
    assert said.status == 2
    assert (
        "--name needs 2 names, separated by commas. Try: --name digits,digits."
        in " ".join(said.err.split())
    )
    said = fw("compile", digits_path, "--concurrent")
    assert "--concurrent needs several models." in said.err
