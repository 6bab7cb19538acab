"""Parser of module text; `ir/printer.py` describes the format.

The data section is split off first and read line by line; its hashes are verified.
"""

import base64
import binascii
import hashlib
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, cast

import numpy as np

from firmwright.base.dtypes import DType
from firmwright.base.errors import ModelError
from firmwright.base.source_paths import module_file_problem
from firmwright.base.tokenizer import Token, Tokenizer
from firmwright.base.version import IR_TEXT_VERSION
from firmwright.ir.attribute_kinds import MODULE_ATTRIBUTES, POOL_ATTRIBUTES
from firmwright.ir.core import Attr, Constant, PoolInfo, Target
from firmwright.ir.graph.parser import GraphParser
from firmwright.ir.module import AnyFunction, IoBinding, IoTensor, IRModule, StateTensor
from firmwright.ir.module_attributes import with_module_attributes
from firmwright.ir.requests import PlacementRequest, RequestOrigin
from firmwright.ir.syntax import SyntaxParser
from firmwright.ir.tir.parser import PrimFuncParser
from firmwright.ir.tir.plan import (
    BufferInfo,
    BufferKind,
    LiveRange,
    OffsetConstraint,
    Placement,
    Plan,
)

FORMAT_VERSION = IR_TEXT_VERSION
_CONSTANT_BYTES_MAX = 1 << 31  # a larger shape is assumed to be an error
_DATA = re.compile(r"^data \{[ \t]*$", re.MULTILINE)
_SECTIONS = (
    "attrs",
    "target",
    "pool",
    "io",
    "request",
    "const",
    "file",
    "graph",
    "func",
    "plan",
)
REQUEST_FIELDS: Mapping[str, type] = {
    "device": str,
    "pool": str,
    "named": str,
    "buffers": str,
    "calls": int,
    "kernels": str,
}
"""The fields of a request in braces, with the type of the value or of list items."""
_REQUEST_LISTS = ("buffers", "calls", "kernels")
_KINDS = ("activation", "input", "output", "scratch", "ring", "state", "const")
T = TypeVar("T")


def parse_module(
    text: str,
    file: str = "<text>",
    *,
    structure_only: bool = False,
    fragment: bool = False,
) -> IRModule:
    """Parse module text; `file` names it in error messages.

    With `structure_only`, elided constants are filled with zeros; otherwise they are an
    error. `fragment` accepts text without the version line. Raises ModelError with the
    position.
    """
    cut = _DATA.search(text)
    data = _read_data(text, cut.end(), file) if cut else {}
    tokens = Tokenizer(text[: cut.start()] if cut else text, file)
    reader = _ModuleParser(tokens, data, structure_only)
    if not fragment or tokens.at("firmwright"):
        reader.version()
    return reader.module()


def _read_data(text: str, start: int, file: str) -> dict[str, bytes]:
    chunks: dict[str, list[str]] = {}
    digest, closed = "", False
    first = text.count("\n", 0, start) + 1
    for number, raw in enumerate(text[start:].split("\n"), first):
        line = raw.strip()
        if not line or line.startswith(";"):
            continue
        where = f"{file}:{number}:1"
        if closed:
            what = f"found {line[:40]!r} after the data section."
            raise ModelError(what, where=where)
        if line == "}":
            closed = True
        elif line.startswith("sha256.") and line.endswith(":"):
            digest = line[len("sha256.") : -1]
            chunks[digest] = []
        elif digest:
            chunks[digest].append(line)
        else:
            what = f"found {line[:40]!r}, expected `sha256.HEX:`."
            raise ModelError(what, where=where)
    if not closed:
        raise ModelError("the data section has no end.", where=f"{file}:{first}:1")
    data: dict[str, bytes] = {}
    for digest, lines in chunks.items():
        data[digest] = _decode_data(digest, "".join(lines), file)
    return data


def _decode_data(digest: str, text: str, file: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        what = f"the bytes of sha256.{digest} are not base64: {error}."
        raise ModelError(what, where=file) from None
    if hashlib.sha256(data).hexdigest() != digest:
        what = f"the bytes of sha256.{digest} do not match their hash."
        raise ModelError(what, where=file)
    return data


class _ModuleParser(SyntaxParser):
    __slots__ = ("_data", "_graphs", "_prims", "_structure_only")

    def __init__(
        self, tokens: Tokenizer, data: Mapping[str, bytes], structure_only: bool
    ) -> None:
        super().__init__(tokens)
        self._graphs = GraphParser(tokens)
        self._prims = PrimFuncParser(tokens)
        self._data = data
        self._structure_only = structure_only

    def version(self) -> None:
        self.tokens.expect("firmwright")
        self.tokens.expect("ir")
        token = self.tokens.peek
        version = self.tokens.int_()
        if version != FORMAT_VERSION:
            what = (
                f"the text has version {version} of the format, expected "
                f"{FORMAT_VERSION}."
            )
            hint = (
                "save the module again with this Firmwright, from the model that it "
                "was made of."
            )
            raise ModelError(what, where=self.tokens.where(token), hint=hint)

    def module(self) -> IRModule:
        name = self.tokens.global_() if self.tokens.accept("module") else ""
        attrs: dict[str, Attr] = {}
        targets: dict[str, Target] = {}
        pools: dict[str, PoolInfo] = {}
        constants: dict[str, Constant] = {}
        functions: dict[str, AnyFunction] = {}
        files: dict[str, bytes] = {}
        requests: list[PlacementRequest] = []
        io, plan = IoBinding(), None
        while not self.tokens.at_end:
            match self.one_of(_SECTIONS):
                case "attrs":
                    attrs |= self.attrs(MODULE_ATTRIBUTES)
                case "target":
                    self._entry(targets, "target", self._target)
                case "pool":
                    self._entry(pools, "pool", self._pool)
                case "const":
                    self._entry(constants, "constant", self._constant)
                case "file":
                    path = self._file_path(files)
                    files[path] = self._hashed(path, 0, "file")
                case "graph" | "func" as kind:
                    token = self.tokens.peek
                    parse = self._graphs.graph if kind == "graph" else self._prims.prim
                    function: AnyFunction = parse()
                    self.unique(function.name, functions, "function", token)
                    functions[function.name] = function
                case "io":
                    io = self._io()
                case "request":
                    requests.append(self._request())
                case _:
                    plan = self._plan()
        module = IRModule(
            name=name,
            functions=functions,
            constants=constants,
            targets=targets,
            pools=tuple(pools.values()),
            io=io,
            plan=plan,
            files=files,
            requests=tuple(requests),
        )
        return with_module_attributes(module, attrs)

    def _entry(self, table: dict[str, T], what: str, read: Callable[[str], T]) -> None:
        token = self.tokens.peek
        name = self.unique(self.tokens.global_(), table, what, token)
        table[name] = read(name)

    def _file_path(self, others: Mapping[str, bytes]) -> str:
        token = self.tokens.peek
        path = self.tokens.string()
        if problem := module_file_problem(path, others):
            raise self.tokens.error(f"the file {path!r} {problem}.", token)
        return path

    def _target(self, name: str) -> Target:
        self.tokens.expect("=")
        kind = self.tokens.string()
        token = self.tokens.peek
        attrs = self.attrs({}) if self.tokens.at("{") else {}
        for attr, value in attrs.items():
            if isinstance(value, float | tuple):
                what = f"attribute {attr} of target {name} is a list."
                raise self.tokens.error(what, token)
        values = cast("dict[str, int | bool | str]", attrs)
        return Target(kind, tuple(values.items()))

    def _pool(self, name: str) -> PoolInfo:
        token = self.tokens.peek
        attrs = self.attrs(POOL_ATTRIBUTES) if self.tokens.at("{") else {}
        if unknown := attrs.keys() - POOL_ATTRIBUTES.keys():
            what = f"pool {name} has the unknown field {min(unknown)!r}."
            raise self.tokens.error(what, token)
        # The values are of the kinds in the table above.
        return PoolInfo(name, **attrs)  # type: ignore[arg-type]

    def _io(self) -> IoBinding:
        mode = cast(Literal["arena", "caller"], self.one_of(("arena", "caller")))
        keep = self.tokens.accept("preserve_input")
        rows = self.tokens.accept("stream_input_rows")
        tensors: dict[str, list[IoTensor]] = {"input": [], "output": []}
        state: list[StateTensor] = []
        self.tokens.expect("{")
        while not self.tokens.accept("}"):
            kind = self.one_of(("input", "output", "state"))
            buffer = self.tokens.local()
            self.tokens.expect("=")
            name = self.tokens.string()
            self.tokens.expect(":")
            tensor_type = self.tensor_type()
            if kind == "state":
                self.tokens.expect("=")
                initial = self.tokens.global_()
                state.append(StateTensor(name, buffer, tensor_type, initial))
            else:
                tensors[kind].append(IoTensor(name, buffer, tensor_type))
        inputs, outputs = tuple(tensors["input"]), tuple(tensors["output"])
        return IoBinding(mode, keep, inputs, outputs, rows, tuple(state))

    def _request(self) -> PlacementRequest:
        tensor, token = self.tokens.local(), self.tokens.peek
        origin = self.tokens.string()
        if origin not in [known.value for known in RequestOrigin]:
            what = f"the request for {tensor} has an unknown origin."
            raise self.tokens.error(what, token)
        attrs = self.attrs({})
        for field, value in attrs.items():
            kind = REQUEST_FIELDS.get(field)
            listed = value if isinstance(value, tuple) else (value,)
            if kind is None or (field in _REQUEST_LISTS) != isinstance(value, tuple):
                what = f"the request for {tensor} has no such {field!r}."
                raise self.tokens.error(what, token)
            if any(type(item) is not kind for item in listed):
                what = f"{field} of the request for {tensor} must be {kind.__name__}."
                raise self.tokens.error(what, token)
        fields = cast("dict[str, Any]", attrs)
        return PlacementRequest(tensor, origin=RequestOrigin(origin), **fields)

    def _constant(self, name: str) -> Constant:
        self.tokens.expect("=")
        token = self.tokens.peek
        dtype, shape = self.dtype(), self.shape()
        size_bytes = math.prod(shape) * (dtype.bits // 8)
        has_valid_shape = min(shape, default=0) >= 0
        if not (dtype.bits and has_valid_shape and size_bytes <= _CONSTANT_BYTES_MAX):
            raise self.tokens.error(f"constant {name!r} has an invalid type.", token)
        pool = ""
        if self.tokens.accept("in"):
            pool = self.in_parentheses(self.tokens.global_)
        in_full = self.tokens.at("[")
        data = self._listed(dtype) if in_full else self._hashed(name, size_bytes)
        if len(data) != size_bytes:
            has = f"constant {name!r} has {len(data)} bytes"
            raise self.tokens.error(f"{has}, its type needs {size_bytes}.", token)
        return Constant(name, dtype, shape, data, pool)

    def _listed(self, dtype: DType) -> bytes:
        token = self.tokens.peek
        is_float = dtype.has_fractions
        read = self.tokens.float_ if is_float else self.tokens.int_
        values = self.items("[", "]", read)
        if not is_float and not all(dtype.min <= v <= dtype.max for v in values):
            what = f"not all of these values are of type {dtype.short}."
            raise self.tokens.error(what, token)
        return np.array(values, dtype=dtype.np.newbyteorder("<")).tobytes()

    def _hashed(self, name: str, size_bytes: int, what: str = "constant") -> bytes:
        token = self.tokens.peek
        digest = self.tokens.ident().removeprefix("sha256.")
        if digest == token.text:
            what = f"found {token.text!r}, expected sha256.HEX."
            raise self.tokens.error(what, token)
        data = self._data.get(digest)
        if data is not None:
            return data
        if self._structure_only:
            return bytes(size_bytes)
        raise ModelError(
            f"the bytes of {what} {name!r} are elided in this text.",
            where=self.tokens.where(token),
            hint="a text printed without eliding constants.",
        )

    def _plan(self) -> Plan:
        planner = self.tokens.string()
        self.tokens.expect("lower_bound")
        lower_bound = self.tokens.int_()
        pool_bytes: dict[str, int] = {}
        buffers: list[BufferInfo] = []
        placements: dict[str, Placement] = {}
        conflicts: list[OffsetConstraint[str]] = []
        self.tokens.expect("{")
        while not self.tokens.accept("}"):
            match self.one_of(("pool", "buffer", "place", "conflict")):
                case "pool":
                    self._entry(pool_bytes, "pool", lambda _: self.tokens.int_())
                case "buffer":
                    buffers.append(self._buffer())
                case "place":
                    self._place(placements)
                case _:
                    conflicts.append(self._conflict())
        lists = tuple(buffers), tuple(conflicts)
        return Plan(planner, placements, pool_bytes, lower_bound, *lists)

    def _buffer(self) -> BufferInfo:
        name = self.tokens.local()
        kind = cast(BufferKind, self.one_of(_KINDS))
        size_bytes = self.tokens.int_()
        self.tokens.expect("align")
        alignment = self.in_parentheses(self.tokens.int_)
        self.tokens.expect("live")
        live = tuple(self.items("(", ")", self._live))
        self.tokens.expect("pools")
        pools = tuple(self.items("(", ")", self.tokens.global_))
        return BufferInfo(name, size_bytes, alignment, live, kind, pools)

    def _live(self) -> LiveRange:
        first = self.tokens.int_()
        self.tokens.expect("..")
        return LiveRange(first, self.tokens.int_())

    def _place(self, placements: dict[str, Placement]) -> None:
        token: Token = self.tokens.peek
        name = self.unique(self.tokens.local(), placements, "the place of", token)
        self.tokens.expect("at")
        pool = self.tokens.global_()
        self.tokens.expect("+")
        placements[name] = Placement(pool, self.tokens.int_())

    def _conflict(self) -> OffsetConstraint[str]:
        a, b = self.tokens.local(), self.tokens.local()
        limits = self.in_parentheses(self._pair)
        period = 0, 0
        if self.tokens.accept("mod"):
            period = self.in_parentheses(self._pair)
        return OffsetConstraint(a, b, *limits, *period)

    def _pair(self) -> tuple[int, int]:
        first = self.tokens.int_()
        self.tokens.expect(",")
        return first, self.tokens.int_()
