"""The Python interface as the README shows it, every step usable alone."""

import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import firmwright as fw

TOOLCHAIN = Path(fw.__file__).parents[1]
ROOT = Path(__file__).parents[1]


def test_public_names_are_few_and_importable():
    assert (
        len(fw.__all__) <= 11
    )  # values, steps, and one function for extensions in notebooks
    assert all(getattr(fw, name) is not None for name in fw.__all__)
    assert set(fw.__all__) <= set(dir(fw))


def test_public_names_do_not_shadow_modules():
    parts = {entry.stem for entry in Path(fw.__file__).parent.iterdir()}
    assert not parts & set(fw.__all__)


def test_import_of_the_package_is_lazy():
    code = "import sys, firmwright; print([m for m in sys.modules if m in ('numpy', 'jinja2')])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(TOOLCHAIN)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_the_version_is_that_of_the_package_metadata():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["project"]["dynamic"] == ["version"]
    source = ROOT / settings["tool"]["hatch"]["version"]["path"]
    assert f'VERSION = "{fw.__version__}"' in source.read_text(encoding="utf-8")


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'quantise'"):
        fw.quantise  # noqa: B018 - the access is the test


@pytest.mark.host_c
@pytest.mark.parametrize("in_process", [False, True])
def test_a_model_is_loaded_compiled_saved_and_run(
    digits_path: Path, tmp_path: Path, in_process: bool
):
    model = fw.load(digits_path)
    compiled = fw.compile(model, board="host")
    compiled.save(tmp_path / "out")
    assert (tmp_path / "out" / "SConstruct").is_file()
    with np.load(digits_path.with_name("digits_test.npz")) as archive:
        images = archive["input_1"][:20]
    labels = np.load(digits_path.with_name("digits_labels.npy"))[:20]
    with fw.session(compiled, in_process=in_process) as session:
        one = session.run(images[0])
        many = session.run(images)
        named = session.run({"image": images[0]})
    assert one.shape == (1, 10)
    assert many.shape == (20, 1, 10)
    assert np.array_equal(many[0], one)
    assert np.array_equal(named["digit"], one)
    assert np.mean(np.argmax(many[:, 0], axis=-1) == labels) >= 0.9


@pytest.mark.host_c
def test_verify_and_build_are_usable_alone(digits_path: Path):
    compiled = fw.compile(fw.load(digits_path))
    assert fw.build_image(compiled).elf.is_file()
    assert fw.verify(compiled, samples=3).exact


def test_all_errors_have_one_base_class(tmp_path: Path):
    with pytest.raises(fw.FirmwrightError):
        fw.load(tmp_path / "absent.tflite")
