"""Sessions with firmware that is built, started and checked, by the model's tensors."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from firmwright.artifacts import Image, PreloadedMemory, Variant
from firmwright.base.closeable import Closeable
from firmwright.base.dtypes import Array
from firmwright.base.errors import DeviceError, InternalError, UsageError
from firmwright.base.html_views import show_html
from firmwright.base.progress_log import ProgressLog
from firmwright.boards import Compiler
from firmwright.codegen.model_identity import run_symbol
from firmwright.device.errors import Timeouts
from firmwright.device.host_library import (
    LibraryConstants,
    LibraryModel,
    LibrarySession,
    LibraryTensor,
)
from firmwright.device.session import Session
from firmwright.device.transport_selection import open_transport, takes_image
from firmwright.flows.board.fault_diagnosis import make_fault_explainer
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.samples import bounded_shapes, sample_batches
from firmwright.flows.samples.input_values import half_rounding
from firmwright.flows.samples.sample_batches import Tensors
from firmwright.ir.constant_pools import UNADDRESSABLE_SCOPES, unlinked_pool_images
from firmwright.ir.module import IoTensor
from firmwright.ir.tir.traversal import prim_calls
from firmwright.pipeline import Compilation

log = logging.getLogger(__name__)


class SessionOptions(TypedDict, total=False):
    """The options of `open_session`."""

    variant: Variant
    port: str
    in_process: bool
    timeout_s: float | None
    image: Image | None
    plugin: str
    compiler: Compiler | None
    baud: int
    through_memory: bool


class ModelRunner(Protocol):
    """The connection of a session: the link, or the library in this process."""

    def run(self, inputs: Tensors) -> dict[str, Array]:
        """Run the model; outputs are flat."""

    def close(self) -> None:
        """Stop the firmware or library."""


class ModelSession(Closeable):
    """A running model, a context manager; `image` is None for firmware at a port."""

    def __init__(
        self, compiled: Compilation, runner: ModelRunner, image: Image | None
    ) -> None:
        self.compiled = compiled
        self.image = image
        self._runner = runner

    def close(self) -> None:
        self._runner.close()

    def _repr_html_(self) -> str:
        return show_html(self)

    @property
    def device(self) -> Session:
        """Return the session on the link; raise UsageError for a library."""
        if not isinstance(self._runner, Session):
            raise UsageError(
                "a library in this process has no counters.", hint="omit in_process."
            )
        return self._runner

    def run(
        self, inputs: Mapping[str, Array] | npt.ArrayLike
    ) -> Array | dict[str, Array]:
        """Run the model on a mapping by tensor name or `input_K`, or on an array.

        An array is the model's only input. The result is a mapping by tensor name, or
        for an array and a single output, that output's array. A leading axis for
        several samples may be added; the outputs then have it too. Floats for a
        quantized input are quantized; a warning is logged if they do not suit its
        range.
        """
        io = self.compiled.module.io
        if isinstance(inputs, Mapping):
            return self._run_named(inputs)
        if len(io.inputs) != 1 + (bounded_shapes.axis_of(self.compiled) is not None):
            names = ", ".join(tensor.name for tensor in io.inputs)
            raise UsageError(
                f"the model has {len(io.inputs)} inputs.",
                hint=f"pass a mapping by name: {names}.",
            )
        outputs = self._run_named({io.inputs[0].name: np.asarray(inputs)})
        return outputs if len(io.outputs) != 1 else outputs[io.outputs[0].name]

    def _run_named(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        io = self.compiled.module.io
        rounding = half_rounding(self.compiled.module)
        name = self.compiled.module.name
        inputs = io.inputs
        if self.compiled.resized:
            arrays, size = bounded_shapes.with_size(arrays, self.compiled)
            inputs = bounded_shapes.inputs_at(self.compiled, size)
        batch = sample_batches.make_batch(arrays, inputs, name, rounding)
        for warning in sample_batches.with_float_warnings(
            batch, self.compiled
        ).warnings:
            log.warning(warning)
        return sample_batches.stack_outputs(self.run_all(batch.samples), batch)

    def run_all(self, samples: Iterable[Tensors]) -> tuple[dict[str, Array], ...]:
        """Return the outputs for every sample, in the model's shapes."""
        outputs: list[dict[str, Array]] = []
        late = self.compiled.module.results.pipelined_runs
        batch = sample_batches.until_late_outputs(samples, late)
        board = self.compiled.board.name
        progress = ProgressLog(log, f"{board}: sample", len(batch))
        for number, sample in enumerate(batch):
            progress.show(number)
            outputs.append(self._run_sample(sample))
        return tuple(outputs[late:])

    def _run_sample(self, sample: Tensors) -> dict[str, Array]:
        axis = bounded_shapes.axis_of(self.compiled)
        if axis is None:
            return self.reshape_outputs(self._runner.run(sample))
        size = bounded_shapes.size_of(sample, axis)
        whole = self._runner.run(bounded_shapes.to_memory(sample, self.compiled))
        return bounded_shapes.from_memory(whole, self.compiled, size)

    def reshape_outputs(self, flat: Tensors) -> dict[str, Array]:
        outputs: dict[str, Array] = {}
        for tensor in self.compiled.module.io.outputs:
            outputs[tensor.name] = flat[tensor.name].reshape(tensor.type.shape)
        return outputs


class SessionOpener(Protocol):
    """`open_session`, or a function that adds options of a user or a measurement."""

    def __call__(
        self, compiled: Compilation, /, **options: Unpack[SessionOptions]
    ) -> ModelSession: ...


def open_session(
    compiled: Compilation,
    *,
    variant: Variant = "release",
    port: str = "",
    in_process: bool = False,
    timeout_s: float | None = None,
    image: Image | None = None,
    plugin: str = "",
    compiler: Compiler | None = None,
    baud: int = 0,
    through_memory: bool = True,
) -> ModelSession:
    """Start the firmware of `compiled`, building it unless `image` is given.

    Args:
        port: The device or pyserial URL of a board that runs the firmware, or a
            plug-in's NAME://.
        in_process: Load the model's C as a library (host only) instead of starting a
            process.
        plugin: The argument of a QEMU plugin.
        baud: The baud rate to switch to; DeviceError if the board or line does not
            support it.
        through_memory: Whether large inputs and outputs of an emulator bypass its
            UART.
    """
    if in_process and not compiled.board.is_host:
        what = f"board {compiled.board.name} cannot run in this process."
        raise UsageError(what, hint="use --board host, or omit --in-process.")
    if in_process:
        image = image or build_image(compiled, compiler=compiler)
        if image.library is None:
            raise InternalError("the host image has no library.")
        library = LibrarySession(image.library, make_library_model(compiled))
        return ModelSession(compiled, library, image)
    if image is None and takes_image(port):
        image = build_image(compiled, variant, compiler=compiler)
    log.info("starting %s", compiled.board.name)
    timeouts = Timeouts() if timeout_s is None else Timeouts.within(timeout_s)
    elf = image.elf if image is not None else Path()
    loads = () if image is None else constant_memory_files(compiled, image)
    transport = open_transport(
        compiled.board,
        elf,
        port=port,
        plugin=plugin,
        loads=loads,
        through_memory=through_memory,
    )
    prefix = compiled.c_prefix
    explain = None if image is None else make_fault_explainer(compiled, image, prefix)
    model_id = bytes.fromhex(compiled.model_id)
    session = Session(transport, model_id=model_id, timeouts=timeouts, explain=explain)
    try:
        require_same_tensors(compiled, session)
        _prepare(compiled, session, baud)
    except BaseException:
        session.close()
        raise
    return ModelSession(compiled, session, image)


def require_same_tensors(compiled: Compilation, session: Session) -> None:
    """Raise DeviceError if firmware with the model's id describes other tensors."""
    io = compiled.module.io
    info = session.info
    expected: list[tuple[str, str, int]] = []
    for tensor in (*io.inputs, *io.outputs):
        expected.append((tensor.name, tensor.type.dtype.name, tensor.type.size_bytes))
    tensors = (*info.inputs, *info.outputs)
    described = [(tensor.name, tensor.dtype, tensor.size_bytes) for tensor in tensors]
    if described != expected or len(info.inputs) != len(io.inputs):
        what = f"the firmware describes the tensors {described}"
        what += f"; the model has {expected}."
        raise DeviceError(
            what, where=info.board, hint="build and flash the firmware again."
        )


def _prepare(compiled: Compilation, session: Session, baud: int) -> None:
    """Raise the baud rate; send the constants that the firmware does not contain."""
    if baud and not session.set_baud(baud):
        raise DeviceError(
            f"the line does not run at {baud} baud: it is not a serial port, the "
            "board's clock has no divisor for that rate, or no reply arrived at it.",
            where=session.info.board,
            hint="use another --baud (230400, 460800, 921600), or omit it.",
        )
    block = params_block(compiled)
    if block is not None:
        log.info("sending %d bytes of constants", len(block))
        session.write_params(block)


def params_block(compiled: Compilation) -> bytes | None:
    """Return the constants of a model that does not link them, for the firmware."""
    return compiled.tree.encoded().get(f"model/{compiled.c_prefix}.params.bin")


def constant_memory_files(
    compiled: Compilation, image: Image
) -> tuple[PreloadedMemory, ...]:
    """Return the files of constants outside the image, with their addresses."""
    symbols = {symbol.name: symbol.address for symbol in image.sizes.symbols}
    files = []
    for pool in unlinked_pool_images(compiled.module):
        file = image.directory / "model" / f"{compiled.c_prefix}_{pool.pool.name}.bin"
        region = compiled.board.external
        if pool.pool.scope in UNADDRESSABLE_SCOPES:
            files.append(PreloadedMemory(file, 0 if region is None else region.start))
        elif pool.pool.section:
            files.append(PreloadedMemory(file, symbols[f"pool_{pool.pool.name}"]))
    return tuple(files)


def make_library_model(compiled: Compilation) -> LibraryModel:
    """Return the facts with which this process calls a compilation's library."""
    module = compiled.module
    name = compiled.c_prefix
    buffers = () if module.plan is None else module.plan.buffers
    pool_bytes = {} if module.plan is None else module.plan.pool_bytes
    index = compiled.tree.files.get(f"model/{name}.params.json")
    devices = {call.device for call in prim_calls(module.aot_main.body) if call.device}
    const_pools: list[LibraryConstants] = []
    for image in unlinked_pool_images(module):
        pool = image.pool
        const_pools.append(LibraryConstants(pool.name, pool.scope, image.data))
    pools: list[tuple[str, int]] = []
    for item in module.pools:
        if item.name in pool_bytes:
            pools.append((item.name, pool_bytes[item.name]))
    return LibraryModel(
        name=name,
        run_symbol=run_symbol(compiled.tree, name),
        pools=tuple(pools),
        inputs=tuple(map(_library_tensor, module.io.inputs)),
        outputs=tuple(map(_library_tensor, module.io.outputs)),
        inputs_in_pools=module.io.inputs_in_pools,
        outputs_in_pools=module.io.outputs_in_pools,
        alignment=max((buffer.alignment for buffer in buffers), default=1),
        params=params_block(compiled),
        param_count=0 if index is None else len(json.loads(index)["params"]),
        has_init=any(buffer.kind == "const" for buffer in buffers),
        state=tuple(tensor.buffer for tensor in module.io.state),
        devices=tuple(sorted(devices)),
        has_probe_callback=compiled.options.emit_probe_callback,
        const_pools=tuple(const_pools),
    )


def _library_tensor(tensor: IoTensor) -> LibraryTensor:
    kind = tensor.type
    return LibraryTensor(tensor.name, tensor.buffer, kind.dtype.name, kind.size_bytes)
