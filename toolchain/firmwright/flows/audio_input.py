"""Sound files as inputs of models that contain their audio front end."""

import wave
from pathlib import Path

import numpy as np

from firmwright.base.dtypes import INT16
from firmwright.base.errors import UsageError
from firmwright.flows.sample_batches import SampleBatch, make_batch, read_npz
from firmwright.ir.graph.nodes import Function
from firmwright.pipeline import Compilation

FRONT_END_OPS = frozenset({"framer", "window", "rfft"})


def read_inputs(path: str, compiled: Compilation) -> SampleBatch:
    """Read the arrays of an .npz file, or a .wav file as consecutive inputs."""
    inputs = compiled.module.io.inputs
    if Path(path).suffix.lower() != ".wav":
        return make_batch(read_npz(path), inputs, path)
    graphs = (func for func in compiled.imported.functions.values() if isinstance(func, Function))
    has_front_end = any(call.op in FRONT_END_OPS for func in graphs for call in func.body)
    if not has_front_end or [tensor.type.dtype for tensor in inputs] != [INT16]:
        kinds = ", ".join(f"{t.name} {t.type.dtype.name} {list(t.type.shape)}" for t in inputs)
        what = f"the model has no audio front end: it takes {kinds}."
        raise UsageError(what, where=path, hint="an .npz file of such arrays.")
    try:
        with wave.open(path, "rb") as file:
            channels, bits = file.getnchannels(), 8 * file.getsampwidth()
            sound = file.readframes(file.getnframes())
    except (OSError, EOFError, wave.Error) as error:
        raise UsageError(f"the sound cannot be read: {error}.", where=path) from error
    size = inputs[0].type.elements
    count = len(sound) // (2 * size)
    if (channels, bits) != (1, 16) or not count:
        what = f"the file has {channels} channels of {bits} bits and {len(sound):,} bytes."
        hint = f"one channel of 16 bits, with {size} samples for each run."
        raise UsageError(what, where=path, hint=hint)
    samples = np.frombuffer(sound, "<i2")[: count * size].astype(np.int16)
    shape = (count, *inputs[0].type.shape)
    return make_batch({inputs[0].name: samples.reshape(shape)}, inputs, path)
