# ruff: noqa: INP001  # a script, not a package
r"""Measure classical models of scikit-learn beside C generators, as a CSV file.

    python benchmarks/peers/classical_models.py --peers VENV/bin/python

VENV is an environment with emlearn, micromlgen, m2cgen and the scikit-learn of this
one. The models are trained with fixed seeds and exported by skl2onnx. Those of nearest
neighbors have features that are whole numbers of 16 bits, which emlearn takes; the
others have floats. Instructions, flash and `equal` are those of tree_ensembles.py, for
Firmwright with `--optimize balanced`.

The C of the peers is called as their documentation does. That of micromlgen is the body
of a C++ class, here with its methods as C functions. m2cgen computes with doubles and
returns scores, of which this script takes the greatest, or the votes of the pairs.

The rows measured replace those of classical_models.csv with the same model, board and
form; `pytest tests/test_tree_table.py --update-golden` rewrites docs/models.md.
"""

import argparse
import csv
import pickle
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from skl2onnx import to_onnx
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC
from tree_ensembles import FEATURES, BuildFailedError, Ensemble, Images, Program

TABLE = Path(__file__).with_suffix(".csv")
FORMS = ("firmwright", "emlearn", "micromlgen", "m2cgen")
MODELS = (
    "SVC, 402 vectors",
    "Gaussian naive Bayes",
    "logistic regression",
    "5 neighbors of 500",
)
HEAD = ("model", "board", "form", "instructions", "flash_bytes", "equal")
NEIGHBORS_TYPE = "int16_t"
CONVERT = """\
import pickle, sys, emlearn, m2cgen, micromlgen
estimator = pickle.load(open(sys.argv[1], "rb"))
peers = {
    "emlearn": lambda: emlearn.convert(estimator, method="loadable").save(name="peer"),
    "micromlgen": lambda: micromlgen.port(estimator),
    "m2cgen": lambda: m2cgen.export_to_c(estimator, function_name="peer_predict"),
}
for name, generate in peers.items():
    try:
        text = generate()
    except Exception as error:
        print(name, type(error).__name__, error, file=sys.stderr)
    else:
        open(f"{sys.argv[2]}/{name}.h", "w").write(text)
print(emlearn.__path__[0])
"""
MICROMLGEN = """\
#include <math.h>
#include <stdarg.h>
static float dot(float *x, ...);
static float compute_kernel(float *x, ...);
"""
NEIGHBORS = """\
static EmlNeighborsDistanceItem distances[500];
static int32_t peer_predict(const int16_t *features, int count)
{
    int16_t label = -1;
    (void)eml_neighbors_predict(&peer, features, count, distances, 500, &label);
    return label;
}
"""
GREATEST = """\
static int32_t class_of(double *x)
{
    double s[3];
    peer_predict(x, s);
    return s[0] >= s[1] && s[0] >= s[2] ? 0 : s[1] >= s[2] ? 1 : 2;
}
"""
VOTES = """\
static int32_t class_of(double *x)
{
    double s[3];
    int32_t votes[3] = {0};
    peer_predict(x, s);
    ++votes[s[0] > 0 ? 0 : 1];
    ++votes[s[1] > 0 ? 0 : 2];
    ++votes[s[2] > 0 ? 1 : 2];
    if (votes[0] >= votes[1] && votes[0] >= votes[2]) {
        return 0;
    }
    return votes[1] >= votes[2] ? 1 : 2;
}
"""


@dataclass(frozen=True, slots=True)
class Peers:
    """The C of the peers that support a model, and the folder of emlearn's headers."""

    texts: Mapping[str, str]
    headers: Path


def train(count: int, only: str) -> Iterator[Ensemble]:
    x, y = make_classification(
        4000, FEATURES, n_informative=6, n_classes=3, random_state=7
    )
    floats = x.astype(np.float32)
    whole = np.rint(x * 1000).astype(np.float32)
    estimators = (
        (SVC(gamma=0.1), floats, 500),
        (GaussianNB(), floats, 3000),
        (LogisticRegression(), floats, 3000),
        (KNeighborsClassifier(algorithm="brute"), whole, 500),
    )
    for name, (estimator, features, rows) in zip(MODELS, estimators, strict=True):
        if only not in name:
            continue
        estimator.fit(features[:rows], y[:rows])
        options = {"zipmap": False}
        data = to_onnx(estimator, features[:1], options=options).SerializeToString()
        yield Ensemble(name, estimator, data, features[3000 : 3000 + count])


def convert(python: Path, folder: Path, estimator: Any) -> Peers:
    """Return the C of the peers that support the model."""
    pickled = folder / "estimator"
    pickled.write_bytes(pickle.dumps(estimator))
    for form in FORMS:
        (folder / f"{form}.h").unlink(missing_ok=True)
    command = [str(python), "-c", CONVERT, str(pickled), str(folder)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=600, cwd=folder
    )
    paths = {form: folder / f"{form}.h" for form in FORMS}
    texts = {form: path.read_text() for form, path in paths.items() if path.exists()}
    return Peers(texts, Path(done.stdout.strip().splitlines()[-1]))


def peer_program(model: Ensemble, form: str, text: str) -> Program:
    if form == "m2cgen":
        body = VOTES if isinstance(model.estimator, SVC) else GREATEST
        run = "results[i] = class_of((void *)(uintptr_t)samples[i]);"
        return Program(text + body, run, "double", "int32_t")
    if form == "micromlgen":
        run = "results[i] = predict((void *)(uintptr_t)samples[i]);"
        return Program(MICROMLGEN + as_functions(text), run, "float", "int32_t")
    run = f"results[i] = peer_predict(samples[i], {FEATURES});"
    if isinstance(model.estimator, KNeighborsClassifier):
        return Program(text + NEIGHBORS, run, NEIGHBORS_TYPE, "int32_t")
    return Program(text, run, "float", "int32_t")


def as_functions(text: str) -> str:
    """Return the methods of micromlgen's class as C functions."""
    lines = text.splitlines()
    begin = next(k for k, line in enumerate(lines) if "int predict(" in line)
    depth, kept = 0, []
    for line in lines[begin:]:
        if depth == 0 and line.strip() in ("}", "};", "protected:"):
            continue
        is_head = depth == 0 and re.match(r"\s+(int|float) \w+\(", line)
        kept.append(f"static {line.strip()}" if is_head else line)
        depth += line.count("{") - line.count("}")
    return "\n".join(kept) + "\n"


def read_rows() -> dict[tuple[str, ...], dict[str, str]]:
    if not TABLE.exists():
        return {}
    with TABLE.open(encoding="utf-8", newline="") as file:
        return {
            tuple(row[name] for name in HEAD[:3]): row for row in csv.DictReader(file)
        }


def write_row(values: Mapping[str, str]) -> None:
    rows = read_rows() | {tuple(values[name] for name in HEAD[:3]): dict(values)}
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, HEAD, lineterminator="\n")
        writer.writeheader()
        order = sorted(
            rows, key=lambda key: (MODELS.index(key[0]), FORMS.index(key[2]))
        )
        writer.writerows(rows[key] for key in order)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=Path, required=True, metavar="PYTHON")
    parser.add_argument("--board", default="mps2-an386")
    parser.add_argument("--forms", nargs="*", default=FORMS, choices=FORMS)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--only", default="", help="part of the model's name")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        images = Images(args.peers, Path(folder))
        for model in train(args.samples, args.only):
            peers = convert(args.peers, Path(folder), model.estimator)
            images.headers = peers.headers
            for form in args.forms:
                try:
                    if form == "firmwright":
                        figures = images.firmwright(model, args.board, "balanced")
                    elif form in peers.texts:
                        text = images.with_headers(peers.texts[form])
                        program = peer_program(model, form, text)
                        figures = images.measure(model, args.board, program)
                    else:
                        continue
                except BuildFailedError as error:
                    print(model.name, form, error, sep=",")
                    continue
                numbers = f"{figures.instructions:.0f}", str(figures.flash_bytes)
                equal = f"{figures.equal:.2f}"
                cells = (model.name, args.board, form, *numbers, equal)
                print(*cells, sep=",", flush=True)
                write_row(dict(zip(HEAD, cells, strict=True)))


if __name__ == "__main__":
    main()
