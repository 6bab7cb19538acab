# ruff: noqa: INP001  # a script, not a package
r"""Measure tree ensembles of scikit-learn beside emlearn's two forms, as a CSV file.

    python benchmarks/peers/tree_ensembles.py --emlearn VENV/bin/python

VENV is an environment with emlearn and the scikit-learn of this one. Six ensembles are
trained with fixed seeds on whole numbers of 16 bits, which emlearn takes, and exported
by skl2onnx. The instructions are those of a function that predicts samples in turn,
counted in QEMU and divided by their number: for Firmwright with the checks of `run`,
the probabilities and the choice of the class. Both read the features where they are
(`--io-buffers caller`). Flash is what an image has beyond one without a model. `equal`
is the share of results equal to scikit-learn's.

The rows measured replace those of tree_ensembles.csv with the same ensemble, board and
form; `pytest tests/test_tree_table.py --update-golden` rewrites docs/models.md.

Needs QEMU, and the extras `sklearn` and `verify`.
"""

import argparse
import csv
import pickle
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from skl2onnx import to_onnx
from sklearn.datasets import make_classification
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.tree import DecisionTreeClassifier

from firmwright.base.cache_folder import cache_root
from firmwright.boards import load_board
from firmwright.build.elf_reader import read_sections_and_symbols
from firmwright.device.instruction_counter import (
    InstructionCounter,
    build_counter_plugin,
)

BOARDS = ("microbit", "mps2-an386", "mps3-an547", "qemu-riscv32-virt")
GOALS = ("speed", "balanced")
PEER_FORMS = {"emlearn inline": "inline", "emlearn table": "loadable"}
FORMS = (*GOALS, *PEER_FORMS)
TABLE = Path(__file__).with_suffix(".csv")
ENSEMBLES = (
    "tree, depth 8",
    "forest 10 x 6",
    "forest 100 x 8",
    "extra trees 50 x 8",
    "regression 20 x 8",
    "boosting 30 x 3",
)
FEATURES = 10
STRIDE = 12
"""Features of a sample with padding: buffers are aligned to 16 bytes."""
CONVERT = """\
import pickle, sys, emlearn
estimator = pickle.load(open(sys.argv[1], "rb"))
for method in ("inline", "loadable"):
    model = emlearn.convert(estimator, method=method, dtype="int16_t")
    open(f"{sys.argv[2]}/{method}.h", "w").write(model.save(name="peer"))
print(emlearn.__path__[0])
"""
MAIN = """\
#pragma GCC optimize("O2")
#include <stdint.h>
#include "port/fwr_port.h"
$model
static const $type samples[$count][$stride] __attribute__((aligned(16))) = {$samples};
static $kind results[$count];

__attribute__((noinline)) void root(void)
{
    for (int32_t i = 0; i < $count; ++i) {
        $predict
    }
}

static void leave(void) /* by semihosting */
{
#if defined(__riscv)
    register uint32_t call __asm__("a0") = 0x18;
    register uint32_t reason __asm__("a1") = 0x20026;
    __asm__ volatile(
        ".option push\\n.option norvc\\n.balign 16\\n"
        "slli x0, x0, 0x1f\\nebreak\\nsrai x0, x0, 7\\n.option pop"
        : : "r"(call), "r"(reason));
#else
    register uint32_t call __asm__("r0") = 0x18;
    register uint32_t reason __asm__("r1") = 0x20026;
    __asm__ volatile("bkpt 0xab" : : "r"(call), "r"(reason));
#endif
    for (;;) {}
}

int main(void)
{
    fwr_port_init();
    root();
    for (int32_t i = 0; i < $count; ++i) {
        union { $kind value; uint32_t bits; } result = {results[i]};
        for (int32_t k = 28; k >= 0; k -= 4) {
            fwr_port_byte_out((uint8_t)"0123456789abcdef"[result.bits >> k & 15]);
        }
    }
    fwr_port_byte_out('\\n');
    root();
    leave();
}
"""
BUFFERS = """\
#include "trees.h"
#define BUFFER(type, name, count) static type name[count] __attribute__((aligned(16)))
#ifdef TREES_SRAM_SIZE
BUFFER(uint8_t, sram, TREES_SRAM_SIZE);
static const struct trees_workspace_pools pools = {.sram = sram};
#else
static const struct trees_workspace_pools pools;
#endif
$buffers
static struct trees_inputs in;
"""
CLASS_BUFFERS = """\
BUFFER(int64_t, label, 1);
BUFFER(float, probabilities, TREES_PROBABILITIES_ELEMENTS);
static const struct trees_outputs out = {label, probabilities};"""
VALUE_BUFFERS = """\
BUFFER(float, variable, 1);
static const struct trees_outputs out = {variable};"""
RUN = """\
in.X = samples[i];
        (void)trees_run(&in, &out, &pools);
        results[i] = $result;"""


@dataclass(frozen=True, slots=True)
class Ensemble:
    """A trained estimator, its ONNX file, and the samples to predict."""

    name: str
    estimator: Any
    model: bytes
    samples: Any

    @property
    def expected(self) -> Any:
        return self.estimator.predict(self.samples)


@dataclass(frozen=True, slots=True)
class Figures:
    """What a prediction takes; `equal` is the share of scikit-learn's results."""

    instructions: float
    flash_bytes: int
    equal: float


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the file."""

    ensemble: str
    board: str
    form: str
    instructions: str
    flash_bytes: str
    equal: str


def train(count: int, only: str) -> Iterator[Ensemble]:
    x, y = make_classification(
        4000, FEATURES, n_informative=6, n_classes=3, random_state=7
    )
    x = np.rint(x * 1000).astype(np.float32)
    value = x[:, 0] * 3 + np.sin(x[:, 1] / 1000) * 5000
    depth = {"max_depth": 8, "random_state": 1}
    estimators = (
        (DecisionTreeClassifier(**depth), y),
        (RandomForestClassifier(10, max_depth=6, random_state=1), y),
        (RandomForestClassifier(100, **depth), y),
        (ExtraTreesClassifier(50, **depth), y),
        (ExtraTreesRegressor(20, **depth), value),
        (GradientBoostingClassifier(n_estimators=30, random_state=1), y),
    )
    for name, (estimator, target) in zip(ENSEMBLES, estimators, strict=True):
        if only not in name:
            continue
        estimator.fit(x[:3000], target[:3000])
        options = {"zipmap": False} if hasattr(estimator, "predict_proba") else None
        data = to_onnx(estimator, x[:1], options=options).SerializeToString()
        yield Ensemble(name, estimator, data, x[3000 : 3000 + count])


@dataclass(frozen=True, slots=True)
class Program:
    """The C of a model in an image; `kind` is the type of a result."""

    model: str
    predict: str
    type: str
    kind: str


def empty_program(type_name: str) -> Program:
    return Program("", "results[i] = samples[i][0];", type_name, "int32_t")


class Images:
    """Builds and runs images of both, with the start-up code of Firmwright."""

    def __init__(self, python: Path, folder: Path) -> None:
        self.python, self.folder = python, folder
        self.plugin = build_counter_plugin(cache_root() / "plugins")
        self.empty: dict[tuple[str, str], int] = {}
        self.projects: dict[str, Path] = {}

    def convert(self, ensemble: Ensemble) -> bool:
        """Write the C of both forms; return whether emlearn supports the ensemble."""
        pickled = self.folder / "estimator"
        pickled.write_bytes(pickle.dumps(ensemble.estimator))
        command = [str(self.python), "-c", CONVERT, str(pickled), str(self.folder)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=1800
        )
        self.headers = Path(
            done.stdout.strip().splitlines()[-1:][0] if done.stdout else ""
        )
        return done.returncode == 0

    def firmwright(self, ensemble: Ensemble, board: str, goal: str) -> Figures:
        is_classifier = hasattr(ensemble.estimator, "classes_")
        result = "(int32_t)label[0]" if is_classifier else "variable[0]"
        buffers = CLASS_BUFFERS if is_classifier else VALUE_BUFFERS
        program = Program(
            BUFFERS.replace("$buffers", buffers),
            RUN.replace("$result", result),
            "float",
            _kind(ensemble),
        )
        project = self._project(ensemble, board, goal)
        return self.measure(ensemble, board, program, project)

    def emlearn(self, ensemble: Ensemble, board: str, form: str) -> Figures:
        path = self.folder / f"{PEER_FORMS[form]}.h"
        model = self.with_headers(path.read_text())
        run = f"results[i] = peer_predict(samples[i], {FEATURES});"
        program = Program(model, run, "int16_t", _kind(ensemble))
        return self.measure(ensemble, board, program)

    def measure(
        self,
        ensemble: Ensemble,
        board: str,
        program: Program,
        project: Path | None = None,
    ) -> Figures:
        """Build and run the program, in the project of a model if it has one."""
        project = project or self._frame(ensemble, board)
        key = (board, program.type)
        if key not in self.empty:
            empty = empty_program(program.type)
            frame = self._frame(ensemble, board)
            self.empty[key] = _flash_bytes(self._build(ensemble, empty, frame))
        image = self._build(ensemble, program, project)
        count, text = self._run(image, board)
        dtype = np.int32 if program.kind == "int32_t" else np.float32
        results = np.frombuffer(bytes.fromhex(text), ">u4").astype(np.uint32)
        equal = np.isclose(results.view(dtype), ensemble.expected, rtol=1e-6)
        flash = _flash_bytes(image) - self.empty[key]
        return Figures(count / len(ensemble.samples), flash, float(np.mean(equal)))

    def _frame(self, ensemble: Ensemble, board: str) -> Path:
        """Return a project of the board whose model the linker removes."""
        if board not in self.projects:
            self.projects[board] = self._project(ensemble, board, "size")
        return self.projects[board]

    def _project(self, ensemble: Ensemble, board: str, goal: str) -> Path:
        onnx_file, main = self.folder / "trees.onnx", self.folder / "main.c"
        onnx_file.write_bytes(ensemble.model)
        main.write_text("int main(void) { return 0; }\n")
        project = Path(tempfile.mkdtemp(dir=self.folder))
        compiled = ["compile", str(onnx_file), "--board", board, "--main", str(main)]
        chosen = "--optimize", goal, "--io-buffers", "caller", "-o", str(project)
        _firmwright(*compiled, *chosen)
        return project

    def with_headers(self, text: str) -> str:
        """Return the C with emlearn's headers in the place of their includes."""
        seen: set[str] = set()

        def paste(line: re.Match[str]) -> str:
            if line[1] in seen:
                return ""
            seen.add(line[1])
            return self._pasted((self.headers / line[1]).read_text(), paste)

        return self._pasted(text, paste)

    def _pasted(self, text: str, paste: Any) -> str:
        return re.sub(r'#include [<"](eml_\w+\.h)[>"]', paste, text)

    def _build(self, ensemble: Ensemble, program: Program, project: Path) -> Path:
        rows = ", ".join(
            "{" + ", ".join(f"{value:.9g}" for value in row) + "}"
            for row in ensemble.samples
        )
        text = MAIN
        values = asdict(program) | {"samples": rows, "stride": STRIDE}
        for name, value in (values | {"count": len(ensemble.samples)}).items():
            text = text.replace(f"${name}", str(value))
        (project / "firmware" / "fwr_app.c").write_text(text)
        _firmwright("build", str(project), "--allow-stack")
        return project / "build" / "release" / "firmware.elf"

    def _run(self, image: Path, board: str) -> tuple[int, str]:
        """Return the instructions of `root`, and what the console prints."""
        _, symbols = read_sections_and_symbols(image)
        root = next(symbol for symbol in symbols if symbol.name == "root")
        run = load_board(board).run
        with InstructionCounter(
            self.plugin, root.address & ~1, root.size_bytes
        ) as counter:
            command = [run.program, "-plugin", counter.argument, "-M", run.machine]
            machine = ["-display", "none", "-monitor", "none", "-serial", "stdio"]
            boot = ["-bios", "none"] if "riscv" in run.program else []
            try:
                done = subprocess.run(
                    [*command, *machine, *boot, "-semihosting", "-kernel", str(image)],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    check=False,
                    timeout=120,
                )
            except subprocess.TimeoutExpired as error:
                raise BuildFailedError("no result within 120 s") from error
            text = done.stdout.decode("latin-1").strip()
            return sum(cell.count for cell in counter.read()), text


def _kind(ensemble: Ensemble) -> str:
    return "int32_t" if hasattr(ensemble.estimator, "classes_") else "float"


class BuildFailedError(Exception):
    """An ensemble does not fit a board, or its image does not run there."""


def _firmwright(*words: str) -> None:
    done = subprocess.run(
        ["firmwright", *words], capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode:
        raise BuildFailedError(done.stdout + done.stderr)


def _flash_bytes(image: Path) -> int:
    sections, _ = read_sections_and_symbols(image)
    return sum(
        item.size_bytes for item in sections if item.kind in ("text", "rodata", "data")
    )


def read_rows() -> dict[tuple[str, str, str], Row]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = [Row(**row) for row in csv.DictReader(file)]
    return {(row.ensemble, row.board, row.form): row for row in rows}


def write_row(new: Row) -> None:
    rows = read_rows() if TABLE.exists() else {}
    rows[new.ensemble, new.board, new.form] = new
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([field.name for field in fields(Row)])
        for key in sorted(rows, key=_place):
            writer.writerow(list(asdict(rows[key]).values()))


def _place(key: tuple[str, str, str]) -> tuple[int, ...]:
    lists = zip((ENSEMBLES, BOARDS, FORMS), key, strict=True)
    return tuple(names.index(name) for names, name in lists)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--emlearn", type=Path, required=True, metavar="PYTHON")
    parser.add_argument("--boards", nargs="*", default=BOARDS, choices=BOARDS)
    parser.add_argument("--forms", nargs="*", default=FORMS, choices=FORMS)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--only", default="", help="part of the ensemble's name")
    parser.add_argument("--missing", action="store_true", help="rows not in the file")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        images = Images(args.emlearn, Path(folder))
        for ensemble in train(args.samples, args.only):
            is_supported = bool({*args.forms} - {*GOALS}) and images.convert(ensemble)
            for board in args.boards:
                for form in args.forms:
                    if args.missing and (ensemble.name, board, form) in read_rows():
                        continue
                    if form not in GOALS and not is_supported:
                        continue
                    measure = images.firmwright if form in GOALS else images.emlearn
                    try:
                        figures = measure(ensemble, board, form)
                    except BuildFailedError as error:
                        print(ensemble.name, board, form, error, sep=",")
                        continue
                    row = _row(ensemble, board, form, figures)
                    print(*asdict(row).values(), sep=",", flush=True)
                    write_row(row)


def _row(ensemble: Ensemble, board: str, form: str, figures: Figures) -> Row:
    count, flash = f"{figures.instructions:.0f}", str(figures.flash_bytes)
    return Row(ensemble.name, board, form, count, flash, f"{figures.equal:.2f}")


if __name__ == "__main__":
    main()
