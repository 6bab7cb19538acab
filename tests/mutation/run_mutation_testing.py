r"""Plants several hundred defects and shows that a checker catches each.

    PYTHONPATH=toolchain python -m tests.mutation.run_mutation_testing \
        [--jobs N] [--part NAME]

Prints a table of defect kinds with the number planted and caught, by checker. Exits
with 1 if a mutant survives. Takes about a quarter of an hour on two cores; needs gcc,
and the MLPerf Tiny models for the parts called kws.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from firmwright.ir.core import PoolInfo
from tests.mutation import mutate_devices, mutate_kernels, mutate_plans, mutate_sources
from tests.mutation.mutants import Row, judged, table
from tests.mutation.source_edits import EDITS
from tests.mutation.subjects import Subject, check_sound, models_file, subject

M4 = "cortex-m -mcpu=cortex-m4"
SMALL_POOLS = (PoolInfo("tiny", 256), PoolInfo("fast", 1500), PoolInfo("slow"))
Make = Callable[[Path], Subject]


def _digits(target: str, samples: int = 400, **rest: object) -> Make:
    return partial(subject, "digits", target, samples=samples, **rest)  # type: ignore[arg-type]


def _net(seed: int, target: str, samples: int = 60, **rest: object) -> Make:
    return partial(subject, f"net {seed}", target, samples=samples, **rest)  # type: ignore[arg-type]


def plans_of(make: Make, folder: Path, per_kind: int) -> list[Row]:
    """Return mutated plans and plans of mutated problems."""
    made = make(folder)
    check_sound(made)
    return judged(
        (
            *mutate_plans.plan_mutants(made, per_kind),
            *mutate_plans.problem_mutants(made, per_kind),
        )
    )


def kernels_of(make: Make, folder: Path, per_kind: int, half: int) -> list[Row]:
    """Return mutated kernels; `half` selects every second one, for two processes."""
    made = make(folder)
    check_sound(made)
    return judged(list(mutate_kernels.mutants(made, per_kind))[half::2])


def devices_of(folder: Path) -> list[Row]:
    """Return mutants of the interaction of two cores."""
    made = subject("digits", "", folder, samples=1, devices=mutate_devices.CORES)
    return judged(mutate_devices.mutants(made, 4))


def sources_of(folder: Path, part: int) -> list[Row]:
    """Return every third mutated source."""
    copy = mutate_sources.copy_of(mutate_sources.ROOT, folder)
    if part == 0:
        mutate_sources.check_sound(copy)
    return judged(mutate_sources.mutants(copy, EDITS[part::3]))


PARTS: Mapping[str, Callable[[Path], list[Row]]] = {
    "plans digits": lambda folder: plans_of(_digits(M4, 4), folder, 3),
    "plans digits, three pools": lambda f: plans_of(
        _digits("c", 4, pools=SMALL_POOLS), f, 2
    ),
    "plans net 11": lambda folder: plans_of(_net(11, "c", 4), folder, 3),
    "plans kws": lambda f: plans_of(partial(subject, "kws", "c", samples=2), f, 2),
    "devices": devices_of,
    "kernels digits, first half": lambda folder: kernels_of(_digits("c"), folder, 3, 0),
    "kernels digits, second half": lambda folder: kernels_of(
        _digits("c"), folder, 3, 1
    ),
    "kernels digits on the M4": lambda folder: kernels_of(_digits(M4), folder, 2, 0),
    "kernels net 7": lambda folder: kernels_of(_net(7, "c"), folder, 2, 0),
    "kernels kws": lambda f: kernels_of(
        partial(subject, "kws", "c", samples=6), f, 2, 1
    ),
    "sources, first third": lambda folder: sources_of(folder, 0),
    "sources, second third": lambda folder: sources_of(folder, 1),
    "sources, last third": lambda folder: sources_of(folder, 2),
}


def run_part(name: str) -> list[Row]:
    """Run one part in its own folder."""
    with tempfile.TemporaryDirectory(prefix="firmwright-mutants-") as folder:
        return PARTS[name](Path(folder))


def main(words: Sequence[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument(
        "--part", action="append", choices=list(PARTS), help="this part only"
    )
    asked = parser.parse_args(words)
    names = asked.part or [
        n for n in PARTS if "kws" not in n or models_file("kws").is_file()
    ]
    rows: list[Row] = []
    with ProcessPoolExecutor(asked.jobs) as pool:
        for name, found in zip(names, pool.map(run_part, names), strict=True):
            lost = sum(row.outcome.survived for row in found)
            print(
                f"{name}: {len(found)} judged, {lost} survived",
                file=sys.stderr,
                flush=True,
            )
            rows += found
    print(table(rows))
    return int(any(row.outcome.survived for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
