"""Sessions with running firmware: write inputs, run, measure, read their outputs."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction

import numpy as np

from firmwright.base.closeable import Closeable
from firmwright.base.dtypes import Array, get_dtype
from firmwright.base.errors import DeviceError, UsageError
from firmwright.device import link_protocol as link
from firmwright.device.errors import (
    RefusedError,
    RequestLostError,
    SessionLostError,
    Timeouts,
)
from firmwright.device.link_protocol import Command, Status, TextKind
from firmwright.device.request_channel import FaultExplainer, RequestChannel
from firmwright.device.transport import Clock, Transport, clock_of, has_memory

Arrays = Mapping[str, Array]

_PAYLOAD_MIN_BYTES = 32
_DATA_HEADER_BYTES = 6  # longest header before data in a payload
_GREETING_LIMITS = 10
"""The greeting (all names and sizes) may take this multiple of a request's limit."""
_SLOWEST_BYTES_PER_S = 64
"""A transfer at a lower rate ends with an error even if every piece arrives in time."""
_MEMORY_MIN_BYTES = 256
"""Smaller transfers use the link even if the transport reaches memory."""
_NAMES_MAX_BYTES = 1 << 20
_TENSORS_MAX_BYTES = 1 << 30
"""Limits of what firmware describes, since this side reserves memory for it."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """The firmware's description of an input or output; shapes are not transmitted.

    `address` is 0 if a debugger cannot access the tensor.
    """

    name: str
    dtype: str
    size_bytes: int
    address: int = 0


@dataclass(frozen=True, slots=True)
class DeviceInfo(link.Hello):
    """The firmware's description of itself, its model and its board."""

    model_name: str
    board: str
    start_up_text: str
    counter_unit: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]

    @property
    def counter_scale(self) -> Fraction:
        """The length of a tick of the counter in `counter_unit`."""
        return Fraction(self.counter_scale_num, self.counter_scale_den or 1)

    @property
    def consumes_input(self) -> bool:
        """Whether a run may overwrite its inputs."""
        return bool(self.flags & link.MODEL_CONSUMES_INPUT)


@dataclass(frozen=True, slots=True)
class RunResult:
    """The cost of some runs in units of `DeviceInfo.counter_unit`, rounded."""

    runs: int
    total: int
    least: int


@dataclass(frozen=True, slots=True)
class OperatorCount:
    """One operator's cost over the last runs; the checksum is 0 unless requested."""

    count: int
    calls: int
    checksum: int


class Session(Closeable):
    """A session with one firmware, from hello to close."""

    def __init__(
        self,
        transport: Transport,
        *,
        model_id: bytes | None = None,
        timeouts: Timeouts | None = None,
        payload_max_bytes: int = link.PAYLOAD_MAX_BYTES,
        explain: FaultExplainer | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Greet the firmware; close the transport on failure or another model id.

        `clock` is that of time limits, by default the transport's.
        """
        self._transport = transport
        self._timeouts = timeouts or Timeouts()
        self._clock = clock or clock_of(transport)
        self._line = RequestChannel(
            transport,
            self._timeouts,
            clock=self._clock,
            explain=explain,
        )
        self._model_id = model_id
        self._payload_limit = payload_max_bytes
        self._payload_bytes = link.HELLO_PAYLOAD_BYTES
        try:
            self.info = self._greet_in_time()
        except BaseException:
            transport.close()
            raise

    def close(self) -> None:
        self._transport.close()

    def write_inputs(self, inputs: Arrays) -> None:
        """Write every input from an array in C order of the input's dtype and size."""
        expected = [tensor.name for tensor in self.info.inputs]
        if sorted(inputs) != sorted(expected):
            what = f"the inputs are {sorted(inputs)}; the model has {expected}."
            raise UsageError(what, where=self.info.model_name)
        blocks = [_bytes_of(inputs[tensor.name], tensor) for tensor in self.info.inputs]
        for index, block in enumerate(blocks):
            address = self.info.inputs[index].address
            self._write(Command.WRITE_INPUT, block, address, index)

    def write_params(self, params: bytes) -> None:
        if len(params) != self.info.params_bytes:
            raise UsageError(
                f"the parameter block has {len(params)} bytes; "
                f"the firmware expects {self.info.params_bytes}.",
                where=self.info.model_name,
            )
        self._write(Command.WRITE_PARAMS, params, self.info.params_address)

    def read_outputs(self) -> dict[str, Array]:
        """Return the last run's outputs as flat arrays; DeviceError without them."""
        outputs: dict[str, Array] = {}
        for index, tensor in enumerate(self.info.outputs):
            size_bytes, address = tensor.size_bytes, tensor.address
            data = self._read(Command.READ_OUTPUT, size_bytes, address, index)
            outputs[tensor.name] = np.frombuffer(data, dtype=tensor.dtype).copy()
        return outputs

    def execute(self, count: int = 1, *, checksums: bool = False) -> RunResult:
        """Run `count` times; `checksums` collects CRC-32s of operators' first outputs.

        Checksums need a profile image.
        """
        request = link.run_request(count, checksums=checksums)
        try:
            frame = self._line.request_frame(Command.RUN, request)
            answer = link.RunAnswer.decode(frame.payload)
        except RefusedError as refused:
            if refused.status != Status.RUN:
                raise
            failed = link.RunAnswer.decode(refused.payload)
            what = f"the model's run returned {failed.model_status}."
            raise self._error(what) from refused
        total = self._units(answer.total_ticks)
        least = self._units(answer.least_ticks)
        return RunResult(answer.runs, total, least)

    def run(self, inputs: Arrays) -> dict[str, Array]:
        self.write_inputs(inputs)
        self.execute()
        return self.read_outputs()

    def measure(self, inputs: Arrays) -> int:
        """Return the cost of the second of two runs, both on newly written inputs."""
        return next(self.measurements(inputs, 1))

    def measurements(self, inputs: Arrays, runs: int) -> Iterator[int]:
        """Yield the costs of runs on newly written inputs, after a warm-up.

        `profile` describes the last of them.
        """
        self.write_inputs(inputs)
        self.execute()
        for _ in range(runs):
            self.write_inputs(inputs)
            yield self.execute().total

    def profile(self) -> tuple[OperatorCount, ...]:
        if not self.info.profile:
            raise self._error(
                "this image has no probes.", "build or flash it with --variant profile."
            )
        records: list[tuple[int, int, int]] = []
        while (first := len(records)) < self.info.operator_count:
            most = max(1, self._payload_bytes // link.OPERATOR_BYTES)
            count = min(most, self.info.operator_count - first)
            answer = self._splittable(Command.PROFILE_READ, first, count)
            if answer is not None:
                records += link.decode_operators(answer, count)
        counts = []
        for ticks, calls, checksum in records:
            counts.append(OperatorCount(self._units(ticks), calls, checksum))
        return tuple(counts)

    def taps(self, operator: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Run once and yield each operator with the bytes of its first output.

        This needs written inputs and a profile image. A single `operator` is yielded
        each time it runs.
        """
        tap = link.TAP_ALL if operator is None else operator
        request = link.run_request(1, checksums=False, tap=tap)
        begin, outside_s = self._clock(), 0.0
        answer = self._line.request_frame(Command.RUN, request)
        while answer.status == Status.PAUSED:
            fields = link.unpack_payload("<HII", answer.payload, "pause message")
            index, size_bytes, address = fields
            if index >= self.info.operator_count or size_bytes > _TENSORS_MAX_BYTES:
                what = f"the firmware paused after an unknown operator {index}."
                raise self._error(what)
            reading = self._clock()
            yield index, self._read(Command.TAP_READ, size_bytes, address)
            outside_s += self._clock() - reading
            left_s = self._timeouts.run_s - (self._clock() - begin - outside_s)
            with self._line.within(left_s):
                answer = self._line.request_frame(Command.STEP)

    def set_baud(self, baud: int) -> bool:
        """Change the baud rate; return False if the old rate is still in use."""
        return self._line.change_baud(baud)

    def stack_bytes(self) -> int:
        answer = self._line.request(Command.STACK)
        (used_bytes,) = link.unpack_payload("<I", answer, "stack mark")
        return int(used_bytes)

    def identity(self) -> tuple[int, ...]:
        """Return the words that tell the kind of core and chip; () if there are none.

        This needs a profile image. runtime_c/ABI.md lists the words of each port.
        """
        try:
            answer = self._line.request(Command.IDENTITY)
        except RefusedError as refused:
            if refused.status != Status.UNSUPPORTED:
                raise
            return ()
        count = len(answer) // link.WORD_BYTES
        return link.unpack_payload(f"<{count}I", answer, "identity")

    def reset(self) -> None:
        """Restart the firmware, even after a fault, and greet it again."""
        # If the answer was lost, the firmware has restarted before the repeated
        # request.
        with contextlib.suppress(SessionLostError):
            self._line.request(Command.RESET)
        self._line.renew()
        self.info = self._greet_in_time()

    def _greet_in_time(self) -> DeviceInfo:
        with self._line.within(_GREETING_LIMITS * self._timeouts.hello_s):
            return self._greet()

    def _greet(self) -> DeviceInfo:
        self._payload_bytes = link.HELLO_PAYLOAD_BYTES
        hello = link.Hello.decode(self._line.request(Command.HELLO))
        name = self._text(TextKind.MODEL)
        if self._model_id is not None and hello.model_id != self._model_id:
            raise self._error(
                f"the firmware contains the model {name} with id "
                f"{hello.model_id.hex()}, not the expected {self._model_id.hex()}.",
                "build and flash the firmware of this model again.",
            )
        if hello.payload_max_bytes < _PAYLOAD_MIN_BYTES:
            raise self._error(
                f"the firmware's largest payload is {hello.payload_max_bytes} bytes; "
                f"the minimum is {_PAYLOAD_MIN_BYTES}."
            )
        self._payload_bytes = min(hello.payload_max_bytes, self._payload_limit)
        return DeviceInfo(
            **asdict(hello),
            model_name=name,
            board=self._text(TextKind.BOARD),
            start_up_text=self._text(TextKind.START_UP),
            counter_unit=self._text(TextKind.COUNTER_UNIT),
            inputs=self._tensors(hello.input_count, TextKind.INPUT_NAME),
            outputs=self._tensors(hello.output_count, TextKind.OUTPUT_NAME),
        )

    def _tensors(self, count: int, names: TextKind) -> tuple[TensorInfo, ...]:
        is_output = names is TextKind.OUTPUT_NAME
        tensors: list[TensorInfo] = []
        names_bytes = tensors_bytes = 0
        for index in range(count):
            answer = self._line.request(Command.TENSOR, is_output, index)
            name = self._text(names, index)
            dtype, size_bytes, address = link.decode_tensor(answer)
            tensors.append(TensorInfo(name, dtype, size_bytes, address))
            names_bytes += len(name)
            tensors_bytes += size_bytes
            if names_bytes > _NAMES_MAX_BYTES or tensors_bytes > _TENSORS_MAX_BYTES:
                raise self._error(
                    f"the firmware describes {tensors_bytes:,} bytes of tensors with "
                    f"{names_bytes:,} bytes of names, more than a device has."
                )
        return tuple(tensors)

    def _text(self, which: TextKind, index: int = 0) -> str:
        text = bytearray()
        total = None
        while total is None or len(text) < total:
            room = max(1, self._payload_bytes - 2)
            answer = self._splittable(Command.TEXT, which, index, len(text), room)
            if answer is None:
                continue
            total = int.from_bytes(answer[:2], "little")
            if len(text) < total and len(answer) <= 2:
                raise self._error("a text is shorter than its length.")
            text += answer[2:]
        return text.decode("utf-8", errors="replace")

    def _splittable(self, command: Command, *fields: int) -> bytes | None:
        """Return the answer; None after repeated losses, with smaller pieces later."""
        try:
            return self._line.request(command, *fields, may_split=self._may_split)
        except RequestLostError:
            self._payload_bytes = max(_PAYLOAD_MIN_BYTES, self._payload_bytes // 2)
            return None

    @property
    def _may_split(self) -> bool:
        return self._payload_bytes > _PAYLOAD_MIN_BYTES

    def _write(self, command: Command, data: bytes, address: int, *index: int) -> None:
        """Write through memory if that is possible, then report it to the firmware.

        A request without bytes comes first: the firmware ends a paused run, which may
        use the memory, before it answers.
        """
        line = self._transport
        if has_memory(line) and address and len(data) >= _MEMORY_MIN_BYTES:
            self._line.request(command, *index, 0)
            line.write_memory(address, data)
            self._line.request(command, *index, len(data))
            return

        def request(offset: int, size: int) -> bytes:
            header = link.pack_request(command, *index, offset)
            return header + data[offset : offset + size]

        size = len(data)
        for _, answer in self._transfer(command, request, size, _DATA_HEADER_BYTES):
            if answer:
                what = f"the firmware answers a write with {len(answer)} bytes."
                raise self._error(what)

    def _read(
        self, command: Command, size_bytes: int, address: int, *index: int
    ) -> bytes:
        """Read through memory if that is possible and the firmware permits reading."""
        line = self._transport
        if has_memory(line) and address and size_bytes >= _MEMORY_MIN_BYTES:
            self._line.request(command, *index, size_bytes, 0)
            return line.read_memory(address, size_bytes)

        def request(offset: int, size: int) -> bytes:
            return link.pack_request(command, *index, offset, size)

        data = bytearray()
        for size, answer in self._transfer(command, request, size_bytes, 0):
            if len(answer) != size:
                raise self._error(
                    f"the firmware sent {len(answer)} bytes of an output instead of "
                    f"{size} requested."
                )
            data += answer
        return bytes(data)

    def _transfer(
        self,
        command: Command,
        request: Callable[[int, int], bytes],
        size_bytes: int,
        header_bytes: int,
    ) -> Iterator[tuple[int, bytes]]:
        """Yield the size of each piece and the answer to it."""
        offset = 0
        limit_s = self._timeouts.of(command) + size_bytes / _SLOWEST_BYTES_PER_S
        with self._line.within(limit_s):
            while offset < size_bytes:
                stream = self._line.stream(
                    command,
                    request,
                    offset,
                    size_bytes,
                    piece_bytes=self._payload_bytes - header_bytes,
                    window_bytes=self.info.receive_bytes,
                    may_split=self._may_split,
                )
                with contextlib.suppress(RequestLostError):
                    for size, answer in stream:
                        offset += size
                        yield size, answer
                    continue
                self._payload_bytes = max(_PAYLOAD_MIN_BYTES, self._payload_bytes // 2)

    def _error(self, what: str, hint: str = "") -> DeviceError:
        return DeviceError(what, where=self._transport.name, hint=hint)

    def _units(self, ticks: int) -> int:
        return round(ticks * self.info.counter_scale)


def _bytes_of(array: Array, tensor: TensorInfo) -> bytes:
    if array.dtype != get_dtype(tensor.dtype).np or array.nbytes != tensor.size_bytes:
        raise UsageError(
            f"the array is {array.dtype} with {array.nbytes} bytes; "
            f"the tensor is {tensor.dtype} with {tensor.size_bytes}.",
            where=tensor.name,
        )
    little_endian = get_dtype(tensor.dtype).np.newbyteorder("<")
    return np.ascontiguousarray(array, dtype=little_endian).tobytes()
