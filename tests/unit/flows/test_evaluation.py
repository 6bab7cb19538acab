"""A data set is run through the float model, the model and its firmware."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import firmwright as fw
import onnx
from firmwright.base.errors import UsageError
from firmwright.cli import evaluate
from firmwright.cli.evaluate import format_evaluation
from firmwright.cli.main import main
from firmwright.report.checked_outputs import CheckedOutputs
from firmwright.report.evaluation import (
    ChangedSample,
    Confusion,
    Evaluation,
    LayerAccuracy,
    RunScores,
    render_evaluation,
)

DIGITS = Path(__file__).parents[3] / "examples/01_digits"
FLOATS = DIGITS / "digits_float.tflite"
DATA = {"data": DIGITS / "digits_test.npz", "labels": DIGITS / "digits_labels.npy"}


@pytest.fixture(scope="module")
def digits() -> fw.Compilation:
    return fw.compile(fw.load(DIGITS / "digits.tflite"))


@pytest.fixture(scope="module")
def evaluation(digits: fw.Compilation) -> Evaluation:
    return fw.evaluate(digits, **DATA, against=FLOATS, compared=8)


@pytest.mark.host_c
def test_digits_have_their_recorded_accuracy(evaluation: Evaluation) -> None:
    recorded = json.loads((DIGITS / "accuracy.json").read_text(encoding="utf-8"))
    floats, model, firmware = evaluation.runs
    assert (evaluation.samples, evaluation.metric) == (360, "classification")
    assert floats.figures["top1"] == recorded["accuracy_float32"]
    assert model.figures["top1"] == recorded["accuracy_int8"]
    assert firmware.figures == model.figures
    assert evaluation.mismatches == 0
    assert evaluation.changed == ()
    assert evaluation.errors == (Confusion(9, 5, 1), Confusion(5, 9, 1))
    assert np.sum(evaluation.confusion_matrix()) == 360


@pytest.mark.host_c
def test_the_layers_that_lose_most_come_first(evaluation: Evaluation) -> None:
    ratios = [layer.sqnr_db for layer in evaluation.layers]
    assert ratios == sorted(ratios)
    assert 25 < ratios[0] < ratios[-1] < 50
    assert {layer.name: layer.op for layer in evaluation.layers}["digit"] == "softmax"
    assert (len(ratios), evaluation.compared) == (9, 8)


@pytest.mark.host_c
def test_real_values_give_the_same_results_as_stored_ones(
    digits: fw.Compilation,
) -> None:
    stored = np.load(DATA["data"])["input_1"]
    arrays = {
        "x": (stored + np.float32(128)) / np.float32(255),
        "y": np.load(DATA["labels"]),
    }
    result = fw.evaluate(
        digits, arrays, samples=40, classes=[f"d{k}" for k in range(10)]
    )
    assert [run.what for run in result.runs] == ["model", "firmware"]
    assert result.runs[0].figures["top1"] == result.runs[1].figures["top1"] > 0.9
    assert result.layers == ()
    assert result.class_name(3) == "d3"


@pytest.mark.host_c
def test_without_labels_classes_and_outputs_are_compared(
    digits: fw.Compilation,
) -> None:
    images = np.load(DATA["data"])["input_1"][:4]
    result = fw.evaluate(digits, {"x": images}, against=FLOATS, compared=0)
    assert list(result.runs[0].figures) == ["same_class", "output_difference"]
    assert (result.is_labeled, result.confusions) == (False, ())


def test_a_float_model_with_another_input_is_refused(digits: fw.Compilation) -> None:
    images = np.load(DATA["data"])["input_1"][:1]
    keyword = DIGITS.parent / "02_keyword/keyword.tflite"
    with pytest.raises(
        UsageError, match=r"the inputs of this model are .*, those of the other"
    ):
        fw.evaluate(digits, {"x": images}, against=keyword)


@pytest.mark.host_c
def test_the_scores_of_a_classifier_are_judged_not_its_class_index(
    tmp_path: Path,
) -> None:
    scale = [1.0, 0.0, 0.0, 1.0, -1.0, -1.0]
    node = onnx.helper.make_node(
        "LinearClassifier",
        ["x"],
        ["label", "probabilities"],
        domain="ai.onnx.ml",
        classlabels_ints=[0, 1, 2],
        coefficients=scale,
        intercepts=[0.0] * 3,
        multi_class=1,
        post_transform="SOFTMAX",
    )
    kinds = {"x": (1, [1, 2]), "label": (7, [1]), "probabilities": (1, [1, 3])}
    infos = [
        onnx.helper.make_tensor_value_info(name, *kind) for name, kind in kinds.items()
    ]
    graph = onnx.helper.make_graph([node], "linear", infos[:1], infos[1:])
    opsets = [
        onnx.helper.make_opsetid("", 17),
        onnx.helper.make_opsetid("ai.onnx.ml", 3),
    ]
    file = tmp_path / "linear.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), file)
    rows = np.float32([[3, 0], [0, 3], [-3, -3], [2, 1], [1, 2]])
    compiled = fw.compile(fw.load(file))
    result = fw.evaluate(compiled, {"x": rows, "y": [0, 1, 2, 0, 1]})
    assert (result.metric, len(result.classes)) == ("classification", 3)
    assert result.runs[1].figures["top1"] == result.runs[1].figures["auc"] == 1
    with pytest.raises(
        UsageError, match=r"no output y\. Try: the outputs are label, probabilities"
    ):
        fw.evaluate(compiled, {"x": rows}, output="y")
    result = fw.evaluate(compiled, {"x": rows, "y": rows[:, 0]}, output="label")
    assert result.metric == "regression"


@pytest.mark.host_c
def test_the_command_writes_json_and_a_page(
    evaluation: Evaluation,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: dict[str, object] = {}
    page = tmp_path / "page.html"
    monkeypatch.setattr(
        evaluate, "evaluate", lambda *_, **more: given.update(more) or evaluation
    )
    words = [
        "evaluate",
        str(DIGITS / "digits.tflite"),
        "--data",
        "here",
        "--classes",
        "a,b",
    ]
    assert (
        main(
            [
                *words,
                "--against",
                str(FLOATS),
                "--samples",
                "7",
                "-o",
                str(page),
                "--json",
            ]
        )
        == 0
    )
    said = json.loads(capsys.readouterr().out)
    assert (said["samples"], said["runs"][0]["figures"]["top5"], said["html"]) == (
        360,
        1,
        str(page),
    )
    assert (given["classes"], given["samples"], given["against"]) == (
        ("a", "b"),
        7,
        str(FLOATS),
    )
    assert 'id="accuracy"' in page.read_text(encoding="utf-8")


@pytest.mark.qemu
def test_an_emulated_board_agrees_with_the_runtime(digits_path: Path) -> None:
    compiled = fw.compile(fw.load(digits_path), board="mps2-an386")
    result = fw.evaluate(compiled, **DATA, samples=30)
    assert (result.mismatches, result.runs[1].runtime) == (0, "mps2-an386")
    assert result.runs[1].figures == result.runs[0].figures


# ---- text and page -------------------------------------------------------------------


def changed_evaluation(classes: int) -> Evaluation:
    names = tuple(f"<{index}>" for index in range(classes))
    return Evaluation(
        model="net",
        board="host",
        data="data",
        samples=3,
        metric="classification",
        is_labeled=True,
        classes=names,
        runs=(),
        mismatches=2,
        confusions=(Confusion(0, 1, 2), Confusion(1, 1, 1)),
        changed=(ChangedSample("a.npy", 0, 0, 1),),
    )


@pytest.mark.host_c
@pytest.mark.parametrize("classes", [2, 30])
def test_changed_samples_and_confusions_are_shown(
    classes: int, evaluation: Evaluation
) -> None:
    result = replace(changed_evaluation(classes), runs=evaluation.runs)
    text = format_evaluation(result)
    assert "2 values differ from the model's runtime" in text
    assert "a.npy   <0>    <0>          <1>" in text
    assert ("label \\ predicted" in text) == (classes == 2)
    page = render_evaluation(result)
    assert ("Confusion matrix" in page) == (classes == 2)
    assert ("Most frequent confusions" in page) == (classes == 30)
    assert "<0>" not in page
    assert "Checked on" not in page


def test_causes_come_first_and_the_page_tells_its_command() -> None:
    runs = (RunScores("model", "LiteRT", {"top1": 0.5}),)
    layers = (LayerAccuracy("fc", "dense", 8, 3.0, 1, 2, 3, index=4),)
    result = replace(
        changed_evaluation(2), runs=runs, layers=layers, warnings=("x saturates",)
    )
    text = format_evaluation(result)
    assert text.index("x saturates") < text.index("loss begins") < text.index("LiteRT")
    check = CheckedOutputs(
        "LiteRT", 3, 2, None, False, "data", "firmwright evaluate x", "2026-02-01"
    )
    page = render_evaluation(result, check=check)
    assert "Checked on 2026-02-01" in page
    assert "<code>firmwright evaluate x</code>" in page
    assert (
        page.index("x saturates") < page.index("Loss begins") < page.index("LiteRT</")
    )
