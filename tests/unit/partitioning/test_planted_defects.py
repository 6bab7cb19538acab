"""`backend test` finds each defect planted in a right backend, and passes that one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from firmwright.cli.main import main
from firmwright.conformance.case_tables import conformance_cases
from firmwright.flows.verify import chain_runs
from firmwright.flows.verify.chain_runs import CaseSamples, ChainRun
from firmwright.flows.verify.operator_conformance import NamedCase

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "tests" / "backends" / "convolver"
PAGE = ROOT / "docs" / "reference" / "adding-an-accelerator.md"
Install = Callable[[str, str, dict[str, str]], None]
pytestmark = pytest.mark.host_c


@dataclass(frozen=True)
class Defect:
    """A replaced text of a file, and the checks of which one has to find it.

    With `problem`, the defect ends the test by an error of the plug-in with that text.
    """

    file: str
    old: str
    new: str
    checks: tuple[str, ...] = ()
    problem: str = ""


C, PY = "convolver.c", "__init__.py"
LINE = "        j->y[i] = (int8_t)value;\n"
RUN = "    compute(&job);\n"
TCM = "        x, y = kernel.inputs[0], kernel.outputs[0]\n"
ASYNC = """
static struct job started;
static int is_started;

int32_t convolver_wait(void);
int32_t convolver_wait(void)
{
    if (is_started) {
        compute(&started);
        is_started = 0;
    }
    return 0;
}

void convolver_run("""
DEVICE = '    doc = "int8 convolutions"\n    device = "engine0"\n    wait = "convolver_wait"\n'
START = "    convolver_wait();\n    started = job;\n    is_started = 1;\n"

DEFECTS = {
    "wrong rounding": Defect(
        C,
        "    return (high >> right) + ((high & mask) > threshold ? 1 : 0);\n",
        "    return high >> right;\n",
        ("output",),
    ),
    "scale of a channel read from a constant for all": Defect(
        PY,
        "np.broadcast_to(np.int32(step.multipliers), channels)",
        "np.int32(step.multipliers[:1])",
        ("operand access",),
    ),
    "off by one at the border": Defect(C, "iy < 0 ||", "iy <= 0 ||", ("output",)),
    "row read outside of the image": Defect(
        C, "iy >= j->in_h", "iy > j->in_h", ("operand access", "output")
    ),
    "stride ignored": Defect(C, "ox * j->stride_w", "ox * j->stride_h", ("output",)),
    "zero point ignored in the padding": Defect(
        C,
        "                continue;\n",
        "                sum -= j->x_zero * j->w[o];\n                continue;\n",
        ("output",),
    ),
    "zero point of the input ignored": Defect(
        C, "(x[c] - j->x_zero)", "x[c]", ("output",)
    ),
    "write past the end": Defect(
        C,
        RUN,
        RUN + "    y[n * out_h * out_w * out_c] = 0;\n",
        ("operand access", "guard byte"),
    ),
    "write before the start": Defect(
        C, RUN, RUN + "    y[-1] = 0;\n", ("operand access", "guard byte")
    ),
    "read past the end without effect": Defect(
        C,
        RUN,
        RUN
        + "    static volatile int8_t unused;\n    unused = x[n * in_h * in_w * in_c];\n",
        ("operand access",),
    ),
    "read past the end times zero": Defect(
        C,
        RUN,
        RUN + "    y[0] += 0 * *(const volatile int8_t *)&x[n * in_h * in_w * in_c];\n",
        ("operand access",),
    ),
    "constant read past the end without effect": Defect(
        C,
        RUN,
        RUN + "    static volatile int32_t unused;\n    unused = shifts[out_c];\n",
        ("operand access",),
    ),
    "state kept between calls": Defect(
        C,
        "    int32_t sum = j->bias[o];\n",
        "    static int32_t sum;\n    sum = (sum & 64) + j->bias[o];\n",
        ("output", "repeated run"),
    ),
    "wrong scope": Defect(
        PY,
        TCM,
        TCM
        + '        if kernel.scope(x) == "tcm":\n            numbers = (*numbers[:-1], step.clamp_max - 1)\n',
        ("output",),
    ),
    "clamps missing": Defect(
        C,
        "        value = value < j->low ? j->low : value > j->high ? j->high : value;\n",
        "",
        ("output",),
    ),
    "wrong sign of the shift": Defect(
        C,
        "const int32_t right = shift > 0 ? 0 : -shift;",
        "const int32_t right = shift > 0 ? shift : -shift;",
        ("output",),
    ),
    "wrong order of channels": Defect(
        C,
        "((o * j->k_h + ky) * j->k_w + kx)",
        "((o * j->k_w + kx) * j->k_h + ky)",
        ("output",),
    ),
    "products of 32 bits": Defect(
        C,
        "(int64_t)(int32_t)((uint32_t)sum << left) * multiplier",
        "(int32_t)((uint32_t)sum << left) * multiplier",
        ("defined behavior",),
    ),
    "sums of 16 bits": Defect(
        C, "    return sum;\n", "    return (int16_t)sum;\n", ("output",)
    ),
    "not deterministic": Defect(
        C,
        LINE,
        "        static uint32_t random;\n        random = random * 1664525u + 1013904223u;\n        value ^= random >> 30 == 3u;\n"
        + LINE,
        ("repeated run",),
    ),
    "input modified": Defect(
        C, RUN, RUN + "    ((int8_t *)x)[0] ^= 1;\n", ("unchanged input",)
    ),
    "aligned addresses assumed": Defect(
        C,
        "            for (int32_t c = 0; c < j->in_c; ++c) {\n",
        "            int32_t c = 0;\n            for (; c + 4 <= j->in_c; c += 4) {\n                const uint32_t four = *(const uint32_t *)(w + c);\n                for (int32_t k = 0; k < 4; ++k) {\n                    sum += (x[c + k] - j->x_zero) * (int8_t)(four >> 8 * k);\n                }\n            }\n            for (; c < j->in_c; ++c) {\n",
        ("defined behavior",),
    ),
    "dilation claimed": Defect(PY, ", dilation=(1, 1))", ")", ("output",)),
    "wrong type of a constant": Defect(
        PY,
        'conv2d.bias_of(call, "int32"), INT32)',
        'conv2d.bias_of(call, "int32").astype("int16"), INT16)',
        ("operand access",),
    ),
    "int16 claimed": Defect(
        PY,
        "call.input(0).dtype == INT8 and ",
        "",
        problem="declare the function convolver_run with different parameters",
    ),
    "second image ignored": Defect(
        C, "= j->n * pixels * j->out_c;", "= pixels * j->out_c;", ("output",)
    ),
    "wrong type of cost": Defect(
        PY,
        "return match.ops[-1].output.elements",
        'return "cheap"',
        problem="`cost` of the backend convolver, for the conv2d that computes",
    ),
    "exception in rejections": Defect(
        PY,
        "return {}",
        'raise KeyError("conv2d")',
        problem="`rejections` of the backend convolver, for the graph @main, raised KeyError",
    ),
    "completion signaled too early": Defect(
        C,
        "        compute(&started);\n",
        "        started.out_h -= 1;\n        compute(&started);\n        started.out_h += 1;\n",
        ("output",),
    ),
}


TOGETHER = (
    "clamps missing",
    "write past the end",
    "constant read past the end without effect",
    "not deterministic",
    "input modified",
    "products of 32 bits",
)
"""A defect for each check, in one backend."""
READS = ("read past the end times zero", "constant read past the end without effect")
ONE_CASE = "3x3_same_int8"
IN_EMULATOR = [
    name for name, defect in DEFECTS.items() if "operand access" in defect.checks
]
ALL_VARIANTS = chain_runs.VARIANTS_OF_A_KIND


@pytest.fixture(autouse=True)
def core_results_once(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compile and run the same cases on the core alone for the first backend only.

    One variant of each kind runs, which finds each defect; all of the right backends
    with --deep.
    """
    make = ChainRun.samples

    def samples(run: ChainRun, cases: Sequence[NamedCase]) -> CaseSamples:
        key = (run.board.name, run.backend.device, *(case.case.name for case in cases))
        if key not in SAMPLES:
            SAMPLES[key] = make(run, cases)
        return SAMPLES[key]

    monkeypatch.setattr(ChainRun, "samples", samples)
    is_right = request.node.name.startswith("test_the_right")
    if not (is_right and request.config.getoption("--deep")):
        monkeypatch.setattr(chain_runs, "VARIANTS_OF_A_KIND", 1)


SAMPLES: dict[tuple[object, ...], CaseSamples] = {}


def texts(*names: str) -> dict[str, str]:
    """The files of the backend with defects; some need a driver or pool."""
    files = {file: (FOLDER / file).read_text() for file in (C, PY)}
    doc = '    doc = "int8 convolutions"\n'
    if "wrong scope" in names:
        files[PY] = files[PY].replace(doc, doc + '    pools = ("tcm",)\n')
    files[PY] = files[PY].replace("import INT8, INT32", "import INT8, INT16, INT32")
    if any(name.startswith("completion") for name in names):
        files[C] = files[C].replace("\nvoid convolver_run(", ASYNC).replace(RUN, START)
        files[PY] = files[PY].replace(doc, DEVICE)
    for name in names:
        defect = DEFECTS.get(name)
        if defect is not None:
            assert files[defect.file].count(defect.old) == 1
            files[defect.file] = files[defect.file].replace(defect.old, defect.new)
    return files


def kit(
    capfd: pytest.CaptureFixture[str], *, status: int, board: str = "host"
) -> Mapping[str, object]:
    words = ["backend", "test", "convolver", "--board", board, "--json"]
    assert main(words) == status
    return json.loads(capfd.readouterr().out)


def checks_of(found: Mapping[str, object]) -> set[str]:
    """Return the checks that found differences."""
    (row,) = found["patterns"]
    return {difference["check"] for difference in row["differing"]}


def accesses_of(found: Mapping[str, object]) -> set[str]:
    """Return the wrong accesses, each with the function."""
    (row,) = found["patterns"]
    accesses: set[str] = set()
    for item in row["differing"]:
        assert item["check"] == "operand access"
        accesses.add(f"{item['place']}: {item['problem']}")
    return accesses


def deep_if_built(name: str) -> object:
    marks = () if DEFECTS[name].problem else pytest.mark.deep
    return pytest.param(name, marks=marks)


@pytest.mark.parametrize("name", [deep_if_built(name) for name in DEFECTS])
def test_each_defect_is_found(
    name: str, install: Install, capfd: pytest.CaptureFixture[str]
) -> None:
    install("convolver", "convolver:Convolver", texts(name))
    defect = DEFECTS[name]
    found = kit(capfd, status=2 if defect.problem else 1)
    if defect.problem:
        assert defect.problem in found["error"]["what"]
    else:
        assert checks_of(found).intersection(defect.checks)


def test_the_right_backend_passes_and_each_check_finds_a_defect(
    install: Install, capfd: pytest.CaptureFixture[str]
) -> None:
    install("convolver", "convolver:Convolver", texts())
    (row,) = kit(capfd, status=0)["patterns"]
    assert row["differing"] == []
    assert len(row["taken"]) >= 11
    is_deep = chain_runs.VARIANTS_OF_A_KIND == ALL_VARIANTS
    assert len(row["variants"]) >= (25 if is_deep else 7)
    install("convolver", "convolver:Convolver", texts(*TOGETHER))
    wanted = {check for name in TOGETHER for check in DEFECTS[name].checks}
    assert checks_of(kit(capfd, status=1)) == wanted


@pytest.mark.qemu
def test_in_an_emulator_reads_outside_of_operands_are_found(
    install: Install, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outputs are right; each access is found where it is, and no other one."""
    cases = [case for case in conformance_cases("conv2d") if case.name == ONE_CASE]
    monkeypatch.setattr(chain_runs, "conformance_cases", lambda op: cases)
    monkeypatch.setattr(chain_runs, "case_variants", lambda op: {})
    install("convolver", "convolver:Convolver", texts(*READS))
    found = kit(capfd, status=1, board="mps2-an386")
    on_the_page = "read of 1 byte: 1 byte after n0_x0"
    assert on_the_page in PAGE.read_text(encoding="utf-8")
    assert accesses_of(found) == {
        f"convolver_run: {on_the_page}",
        "convolver_run: read of 4 bytes: 1 byte after convolver_conv2d_0.shifts",
    }


@pytest.mark.deep
@pytest.mark.qemu
@pytest.mark.parametrize("name", ["", *IN_EMULATOR])
def test_in_an_emulator_each_defect_of_accesses_is_found(
    name: str, install: Install, capfd: pytest.CaptureFixture[str]
) -> None:
    install("convolver", "convolver:Convolver", texts(name))
    found = kit(capfd, status=1 if name else 0, board="mps2-an386")
    assert checks_of(found) >= ({"operand access"} if name else set())


@pytest.mark.deep
def test_the_right_asynchronous_backend_passes(
    install: Install, capfd: pytest.CaptureFixture[str]
) -> None:
    install("convolver", "convolver:Convolver", texts("completion"))
    assert checks_of(kit(capfd, status=0)) == set()
