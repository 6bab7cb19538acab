"""The program for Keras on the page about models writes files that compile."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from firmwright.flows.model.model import load_model, model_inputs, model_outputs

PAGE = Path(__file__).resolve().parents[2] / "docs/models.md"


@pytest.mark.deep
@pytest.mark.skipif(
    not importlib.util.find_spec("tensorflow"), reason="needs TensorFlow"
)
def test_the_program_of_the_page_writes_models_with_its_names(tmp_path: Path) -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Keras")[2]
    program = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert program is not None
    file = tmp_path / "train_net.py"
    file.write_text(program[1], encoding="utf-8")
    subprocess.run([sys.executable, file], cwd=tmp_path, check=True, timeout=600)
    for name in ("net.tflite", "net_float.tflite"):
        model = load_model(tmp_path / name)
        assert [tensor.name for tensor in model_inputs(model)] == ["mfcc"]
        assert [tensor.name for tensor in model_outputs(model)] == ["scores"]
    assert (tmp_path / "test.npz").is_file()
