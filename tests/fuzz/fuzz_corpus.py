"""Fuzzer of all readers of external files; reports inputs that are not handled.

    PYTHONPATH=toolchain python -m tests.fuzz.fuzz_corpus
        [--cases N] [--seed S] [--jobs J] [--reader NAME]

Each case must yield a value or one of our errors, within time and memory limits.
Anything else is a finding: it is reduced, written to a folder, and the command exits
with 1. The same seed gives the same cases on every machine. A million cases take about
a quarter of an hour on two cores.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import logging
import random
import resource
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from firmwright.base.errors import FirmwrightError, InternalError
from tests.fuzz.readers import READERS, Reader

LEAST_CASES = 20_000
"""Minimum for each reader, of a million cases."""
LIMIT_S = 5.0
MEMORY_BYTES = 4 << 30
BLOCK = 2_000
KEPT = 20
SMALLER_TRIES = 300


@dataclass(frozen=True, slots=True)
class Finding:
    """A case that ended in another way, identified by its location."""

    reader: str
    label: str
    what: str
    data: bytes


@dataclass(slots=True)
class Found:
    """The results of one block, or of all blocks of one reader."""

    cases: int = 0
    accepted: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0
    findings: dict[str, Finding] = field(default_factory=dict)

    def add(self, other: Found) -> None:
        self.cases += other.cases
        self.accepted += other.accepted
        self.seconds += other.seconds
        self.slowest_s = max(self.slowest_s, other.slowest_s)
        for what, finding in other.findings.items():
            self.findings.setdefault(what, finding)


class TooLongError(BaseException):
    """The time limit of a case; error handlers must not swallow it."""


@contextlib.contextmanager
def bounded(limit_s: float = LIMIT_S) -> Iterator[None]:
    """Raise TooLongError after the time limit."""

    def ring(*_: object) -> None:
        raise TooLongError(f"more than {limit_s} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def case(reader: Reader, seed: int, index: int) -> tuple[str, bytes]:
    """Return the label and the bytes of a case."""
    rng = random.Random(f"{reader.name}/{seed}/{index}")
    return f"{reader.name}, seed {seed}, case {index}", reader.bend(
        rng.choice(reader.seeds()), rng
    )


def end_of(reader: Reader, data: bytes) -> tuple[bool, str]:
    """Return whether the case was accepted, and kind and place of a finding or ""."""
    try:
        with bounded():
            reader.read(data)
    except InternalError as error:
        return False, _place(error)
    except FirmwrightError as error:
        return False, "" if str(error).strip() else "an error without a word"
    except (Exception, TooLongError) as error:  # noqa: BLE001  # all are findings
        return False, _place(error)
    return True, ""


def _place(error: BaseException) -> str:
    """Return kind of error and last location in our code, which identify a finding."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [
        f for f in frames if "firmwright" in f.filename and "tests" not in f.filename
    ]
    if isinstance(error, RecursionError | TooLongError | MemoryError):
        ours = ours[:4]  # where it goes in; how deep it got depends on the moment
    at = (
        f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"
        if ours
        else "nowhere of ours"
    )
    return f"{type(error).__name__} at {at}: {str(error)[:100]}"


def run_block(name: str, seed: int, first: int, end: int) -> Found:
    """Run some cases of one reader in this process."""
    reader = find(name)
    found = Found()
    for index in range(first, end):
        label, data = case(reader, seed, index)
        begin = time.monotonic()
        accepted, what = end_of(reader, data)
        took = time.monotonic() - begin
        found.add(Found(1, accepted, took, took))
        key = what.partition(": ")[0]
        if what and key not in found.findings and len(found.findings) < KEPT:
            found.findings[key] = Finding(name, label, what, smaller(reader, data, key))
    return found


def smaller(reader: Reader, data: bytes, key: str) -> bytes:
    """Reduce the data as long as the outcome stays the same."""
    size, tries = max(1, len(data) // 2), 0
    while size and tries < SMALLER_TRIES:
        at = 0
        while at < len(data) and tries < SMALLER_TRIES:
            shorter, tries = data[:at] + data[at + size :], tries + 1
            if end_of(reader, shorter)[1].partition(": ")[0] == key:
                data = shorter
            else:
                at += size
        size //= 2
    return data


def find(name: str) -> Reader:
    return next(reader for reader in READERS if reader.name == name)


def settle() -> None:
    """Set the resource limits of a worker and silence expected warnings."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")


def blocks(cases: int, readers: Sequence[Reader]) -> list[tuple[str, int, int]]:
    """Return (reader, first, end): the shares of all cases, none below its minimum."""
    whole = sum(reader.share for reader in readers)
    found = []
    for reader in readers:
        count = max(cases * reader.share // whole, LEAST_CASES * cases // 1_000_000)
        found += [
            (reader.name, n, min(n + BLOCK, count)) for n in range(0, count, BLOCK)
        ]
    return found


def main(words: Sequence[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--cases", type=int, default=1_000_000, help="of all readers (1000000)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument("--reader", action="append", help="this reader only")
    parser.add_argument(
        "--findings", type=Path, default=Path("findings"), help="folder for them"
    )
    asked = parser.parse_args(words)
    readers = [r for r in READERS if not asked.reader or r.name in asked.reader]
    results = {reader.name: Found() for reader in readers}
    begin = time.monotonic()
    with ProcessPoolExecutor(asked.jobs, initializer=settle) as pool:
        asks = [
            (name, pool.submit(run_block, name, asked.seed, first, end))
            for name, first, end in blocks(asked.cases, readers)
        ]
        for number, (name, ask) in enumerate(asks):
            results[name].add(ask.result())
            if number + 1 == len(asks) or asks[number + 1][0] != name:
                print(_row(name, results[name]), file=sys.stderr, flush=True)
    _show(results, time.monotonic() - begin)
    for found in results.values():
        _keep(found, asked.findings)
    return int(any(found.findings for found in results.values()))


def _show(results: dict[str, Found], seconds: float) -> None:
    print(
        f"{'reader':22} {'cases':>9} {'accepted':>9} {'ms a case':>9} {'slowest s':>9}  findings"
    )
    for name, found in results.items():
        print(_row(name, found))
    total = sum(found.cases for found in results.values())
    findings = Counter(name for name, found in results.items() for _ in found.findings)
    print(f"{total:,} cases, {findings.total()} findings, {seconds:.0f} s")


def _row(name: str, found: Found) -> str:
    each_ms = 1000 * found.seconds / max(found.cases, 1)
    return (
        f"{name:22} {found.cases:9,} {found.accepted:9,} {each_ms:9.2f} "
        f"{found.slowest_s:9.2f}  {len(found.findings)}"
    )


def _keep(found: Found, folder: Path) -> None:
    for finding in found.findings.values():
        folder.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(finding.data).hexdigest()[:8]
        path = folder / f"{finding.reader.replace(' ', '-')}-{digest}"
        path.write_bytes(finding.data)
        print(f"  {finding.label}: {finding.what} ({len(finding.data)} bytes, {path})")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
