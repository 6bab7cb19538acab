"""Certify the networks of MLPerf Tiny, for the table of proof-bundles.md.

    python docs/proof_bundles_table.py MODELS [FOLDER] [-m kws] [-f portable] ...

MODELS is the folder of the models, FOLDER a new one in which the bundles are kept. Each
is checked by `python3 -I check_bundle.py` in an empty folder. Bundles whose claims do
not all hold end the command.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import firmwright as fw
from firmwright.flows.board.model_session import open_session
from firmwright.flows.certify.bundle import CHECKER, CertifyRequest, write_bundle
from firmwright.flows.verify.verification import verification_samples

MODELS = {
    "kws": "kws_ref_model.tflite",
    "ad": "ad01_int8.tflite",
    "ww": "str_ww_ref_model.tflite",
    "vww": "vww_96_int8.tflite",
    "ic": "pretrainedResnet_quant.tflite",
}
RUNS = 32
CHECK_SECONDS_MAX = 600
COLUMNS = (
    "model",
    "firmware",
    "bundle, MB",
    "`certify`, s",
    "checker, s",
    "statements reached",
    "alarms",
    "weights",
    "not claimed",
)


_LEFT_OUT = r"(weights|biases|requantize).*; not claimed for operators (\[.*\])"


@dataclass(frozen=True, slots=True)
class FirmwareForm:
    """A board, and whether the C has assembly."""

    title: str
    board: str
    inline_asm: bool


FORMS = {
    "assembly": FirmwareForm("Cortex-M4, assembly", "mps2-an386", True),
    "portable": FirmwareForm("Cortex-M4, portable C", "mps2-an386", False),
    "riscv": FirmwareForm("RV32, assembly", "qemu-riscv32-virt", True),
}


@dataclass(frozen=True, slots=True)
class CheckedBundle:
    """A bundle that its checker accepted, and the seconds that this took."""

    claims: tuple[str, ...]
    size_bytes: int
    certify_s: float
    check_s: float
    reached: int
    statements: int
    alarms: int


def certify(path: Path, form: FirmwareForm, folder: Path) -> CheckedBundle:
    """Write the bundle of a model to `folder`, and check it where nothing of ours is.

    Raise AssertionError if the checker rejects it.
    """
    start = time.monotonic()
    compiled = fw.compile(
        fw.load(path),
        board=form.board,
        analysis_hints=True,
        inline_asm=form.inline_asm,
    )
    samples = verification_samples(compiled, RUNS, 0).samples
    bundle = write_bundle(compiled, CertifyRequest(open_session, samples), folder)
    written = time.monotonic()
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run(
            ["python3", "-I", folder.resolve() / CHECKER.name, folder.resolve()],
            cwd=empty,
            capture_output=True,
            text=True,
            timeout=CHECK_SECONDS_MAX,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    analysis = bundle.analysis
    return CheckedBundle(
        claims=tuple(done.stdout.splitlines()),
        size_bytes=bundle.size_bytes,
        certify_s=written - start,
        check_s=time.monotonic() - written,
        reached=analysis.reached if analysis else 0,
        statements=analysis.statements if analysis else 0,
        alarms=len(analysis.alarms) if analysis else 0,
    )


def row(name: str, form: FirmwareForm, bundle: CheckedBundle) -> str:
    """Return the row of a bundle in the table."""
    text = "\n".join(bundle.claims)
    weights = re.search(r"([\d,]+) weights are", text)
    left_out: list[str] = []
    for name_of_claim, operators in re.findall(_LEFT_OUT, text):
        left_out.append(f"{name_of_claim} of {operators}")
    analysis = ["not analyzed", ""]
    if bundle.statements:
        analysis = [f"{bundle.reached:,} of {bundle.statements:,}", str(bundle.alarms)]
    cells = [
        name,
        form.title,
        f"{bundle.size_bytes / 1e6:.1f}",
        f"{bundle.certify_s:.0f}",
        f"{bundle.check_s:.0f}",
        *analysis,
        weights[1] if weights else "",
        ", ".join(left_out),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("-m", "--model", choices=MODELS, action="append")
    parser.add_argument("-f", "--form", choices=FORMS, action="append")
    args = parser.parse_args()
    folder = args.folder or Path(tempfile.mkdtemp())
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    for name, key in product(args.model or MODELS, args.form or FORMS):
        path, target = args.models / MODELS[name], folder / f"{name}-{key}"
        bundle = certify(path, FORMS[key], target)
        print(*bundle.claims, sep="\n", file=sys.stderr)
        print(row(name, FORMS[key], bundle), flush=True)


if __name__ == "__main__":
    main()
