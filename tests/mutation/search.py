"""Search for an input that exposes a rare defect.

The original and the mutated program draw the same inputs, of four kinds, and print a
hash of all values written. The first difference gives a sample, which is then compared
with the reference runtime like any other.
"""

from __future__ import annotations

import subprocess
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from firmwright.artifacts import SourceTree
from firmwright.flows.board.model_session import make_library_model
from firmwright.flows.samples.sample_batches import Tensors
from tests.mutation.subjects import Subject, pools_of

TRIES = 60_000
TIME_S = 60
SMALL_MACS = 500_000
_MAIN = """
#include "mutant.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
extern uint64_t hash_of_run;
static uint64_t state;
static uint32_t draw(void)
{
    state += 0x9e3779b97f4a7c15u;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)(z >> 33);
}
/* Noise; noise about a level; the two ends alone; few values that are not the lowest. */
static void fill(uint8_t *to, uint32_t bytes, uint32_t kind)
{
    const int level = (int)(draw() % 200) - 100;
    for (uint32_t i = 0; i < bytes; ++i) {
        const int noise = (int)(draw() & 255) - 128;
        const int value[4] = {noise, level + noise / 6, noise < 0 ? -128 : 127,
                              noise > 90 ? (int)(draw() & 255) - 128 : -128};
        to[i] = (uint8_t)value[kind];
    }
}
int main(int count, char **words)
{
    struct mutant_workspace_pools pools;
    struct mutant_inputs in;
    struct mutant_outputs out;
POOLS
    mutant_map_io(&pools, &in, &out);
    const uint32_t first = (uint32_t)atol(words[1]), end = (uint32_t)atol(words[2]);
    for (uint32_t n = first; n < end; ++n) {
        state = (uint64_t)n << 20;
FILLS
        if (count > 3) {
SHOWS
            continue;
        }
        hash_of_run = 0;
        if (mutant_run(&in, &out, &pools) != 0) return 3;
        fwrite(&hash_of_run, 8, 1, stdout);
    }
    return 0;
}
"""
_PROBE = """
#include <stdint.h>
uint64_t hash_of_run;
static void dump(uint32_t index, uint32_t phase, const void *data, uint32_t bytes)
{
    const uint8_t *at = data;
    for (uint32_t i = 0; phase == 1 && i < bytes; ++i)
        hash_of_run = (hash_of_run ^ (at[i] + index)) * 0x100000001b3u;
}
#define MUTANT_PROBE dump
"""


def differing(
    subject: Subject, sound: SourceTree, mutant: SourceTree
) -> Tensors | None:
    """Return the first sample on which the two programs differ."""
    if make_library_model(subject.compiled).state:
        return None
    macs = sum(int(row["macs"]) for row in subject.compiled.metadata["operators"])
    tries = TRIES if macs < SMALL_MACS else TRIES // 60
    expected = _sound_hashes(subject, sound, tries)
    found = _hashes(_built(subject, mutant, "mutant_hash"), tries)
    differ = np.flatnonzero(expected[: len(found)] != found)
    if not differ.size:
        return None
    return _sample(subject, int(differ[0]))


@lru_cache(maxsize=16)
def _known(program: Path, tries: int) -> NDArray[np.uint64]:
    return _hashes(program, tries)


def _sound_hashes(
    subject: Subject, sound: SourceTree, tries: int
) -> NDArray[np.uint64]:
    program = subject.folder / "sound_hash"
    if not program.is_file():
        _built(subject, sound, program.name)
    return _known(program, tries)


def _hashes(program: Path, tries: int) -> NDArray[np.uint64]:
    words = [str(program), "0", str(tries)]
    ran = subprocess.run(words, capture_output=True, check=False, timeout=TIME_S)
    return np.frombuffer(ran.stdout[: len(ran.stdout) // 8 * 8], np.uint64)


def _sample(subject: Subject, number: int) -> Tensors:
    words = [str(subject.folder / "sound_hash"), str(number), str(number + 1), "show"]
    data = subprocess.run(words, capture_output=True, check=True).stdout
    sample, at = {}, 0
    for tensor in subject.compiled.module.io.inputs:
        size = tensor.type.size_bytes
        values = np.frombuffer(data[at : at + size], tensor.type.dtype.np)
        sample[tensor.name] = values.reshape(tensor.type.shape)
        at += size
    return sample


def _built(subject: Subject, tree: SourceTree, name: str) -> Path:
    tree.write(subject.folder)
    inputs = make_library_model(subject.compiled).inputs
    lines = [(t.field, t.size_bytes) for t in inputs]
    text = _MAIN.replace("POOLS", pools_of(subject))
    for word, line in (
        ("FILLS", "        fill((uint8_t *)in.{}, {}, n % 4);"),
        ("SHOWS", "            fwrite(in.{}, 1, {}, stdout);"),
    ):
        text = text.replace(word, "\n".join(line.format(*one) for one in lines))
    main, program = subject.folder / "hash.c", subject.folder / name
    main.write_text(text)
    (subject.folder / "hash.h").write_text(_PROBE)
    words = ["gcc", "-std=c99", "-O2", "-w", "-ffp-contract=off", "-fwrapv"]
    words += [f"-I{subject.folder}", f"-I{subject.folder / 'model'}"]
    words += ['-DMUTANT_PROBE_HEADER="hash.h"', str(main)]
    words += [str(subject.folder / "model" / "mutant.c"), "-o", str(program), "-lm"]
    subprocess.run(words, check=True)
    return program
