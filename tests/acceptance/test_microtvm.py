"""A program written for microTVM's C interface runs one of our models unchanged."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

import firmwright as fw
from firmwright.base.errors import UsageError

APP = Path(__file__).parent / "microtvm" / "app.c"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "01_digits"
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror")
FLAGS = ("-std=c99", "-O1", *WARNINGS, "-fsanitize=undefined")
SAMPLES = 40


@pytest.mark.host_c
@pytest.mark.parametrize(
    "own_stack",
    [
        pytest.param(False, id="static"),
        pytest.param(True, id="stack", marks=pytest.mark.deep),
    ],
)
def test_microtvm_program_links_and_is_bit_exact(
    own_stack: bool, tmp_path: Path
) -> None:
    compiled = fw.compile(
        fw.load(EXAMPLE / "digits.tflite", name="default"), c_api="tvm"
    )
    compiled.tree.write(tmp_path)
    assert (tmp_path / "tvm" / "tvmgen_default.h").is_file()
    chosen = [f"-DAPP_STACK={int(own_stack)}"]
    chosen += ["-DTVMGEN_DEFAULT_ALLOC_WORKSPACE=1"] * own_stack
    sources = [str(APP), "tvm/tvmgen_default.c", *map(str, tmp_path.glob("model/*.c"))]
    command = ["cc", *FLAGS, *chosen, "-Itvm", "-Imodel", *sources, "-lm", "-o", "app"]
    subprocess.run(command, cwd=tmp_path, check=True)
    images = np.load(EXAMPLE / "digits_test.npz")["input_1"][:SAMPLES]
    done = subprocess.run(
        [tmp_path / "app"], input=images.tobytes(), capture_output=True, check=True
    )
    with fw.session(
        fw.compile(fw.load(EXAMPLE / "digits.tflite")), in_process=True
    ) as session:
        expected = session.run(images)
    found = np.frombuffer(done.stdout, np.int8).reshape(expected.shape)
    np.testing.assert_array_equal(found, expected)


def test_model_files_are_independent_of_the_tvm_api() -> None:
    plain = fw.compile(fw.load(EXAMPLE / "digits.tflite"))
    both = fw.compile(fw.load(EXAMPLE / "digits.tflite"), c_api="tvm")
    added = set(both.tree.files) - set(plain.tree.files)
    assert added == {"tvm/tvmgen_digits.h", "tvm/tvmgen_digits.c"}
    same = set(plain.tree.files) - {"metadata.json"}
    assert all(plain.tree.files[path] == both.tree.files[path] for path in same)
    assert both.model_id == plain.model_id


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"io_buffers": "caller"}, "--io-buffers caller"),
        ({"link_params": False}, "external constants"),
    ],
)
def test_options_unsupported_by_the_tvm_api_are_refused(
    options: dict[str, object], what: str
) -> None:
    with pytest.raises(UsageError, match=f"no place for {what}"):
        fw.compile(fw.load(EXAMPLE / "digits.tflite"), c_api="tvm", **options)
