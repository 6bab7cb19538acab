"""Tests of module text: modules round-trip, and malformed texts are located errors."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from firmwright.base.dtypes import (
    BOOL,
    FLOAT32,
    HANDLE,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
)
from firmwright.base.errors import ModelError
from firmwright.base.quant import Quantization
from firmwright.ir import tir
from firmwright.ir.core import Constant, PoolInfo, Span, Target, VirtualDevice
from firmwright.ir.graph.attributes import attrs_from_mapping
from firmwright.ir.graph.nodes import Call as OpCall
from firmwright.ir.graph.nodes import Function, TensorType, Value
from firmwright.ir.module import IoBinding, IoTensor, IRModule
from firmwright.ir.printer import parse_module, print_module
from firmwright.ir.settings import Settings
from firmwright.ir.tir.builder import (
    ArithExpr,
    Builder,
    call_intrinsic,
    logical_and,
    maximum,
    minimum,
)
from firmwright.ir.tir.plan import (
    BufferInfo,
    LiveRange,
    OffsetConstraint,
    Placement,
    Plan,
)


def conv() -> tuple[tir.PrimFunc, dict[str, Constant]]:
    b = Builder("conv2d_3", Span("a model.tflite", 0, 3, 'conv/BiasAdd;\n"odd"'))
    x = b.buffer_param("x", INT8, (1, 9, 9, 4), "in")
    y = b.buffer_param("y", INT8, (1, 5, 5, 2), "out")
    w = b.constant("w", np.arange(72).reshape(2, 3, 3, 4), INT8, alignment=4)
    with (
        b.for_("oy", 5) as oy,
        b.for_("ox", 5) as ox,
        b.for_("oc", 2, kind="unrolled") as oc,
    ):
        acc = b.reg("acc", INT32)
        b.store(acc, [0], 0)
        with b.for_("ky", 3) as ky:
            iy = b.let("iy", oy * 2 + ky - 1)
            with b.if_(logical_and(iy >= 0, iy < 9)), b.for_("c", 4) as c:
                product = b.load_i32(x, [0, iy, ox, c]) * b.load_i32(w, [oc, ky, 1, c])
                b.store(acc, [0], b.load(acc, [0]) + (product + 128) * 3)
            with b.else_():
                b.store(acc, [0], b.load(acc, [0]) - -5)
        scaled = call_intrinsic("requantize", [b.load(acc, [0]), 1 << 30, -7], INT32)
        b.store(y, [0, oy, ox, oc], minimum(maximum(scaled, -128), 127).cast(INT8))
    return b.build(
        op="conv2d", macs=1800, ratio=0.1, flags=(True, (1, "two"), ())
    ), b.constants


def main() -> tir.PrimFunc:
    sram = tir.Buffer("sram", UINT8, (4096,), scope="pool", alignment=16)
    t = tir.Buffer("t", INT8, (1, 5, 5, 2), alignment=4)
    args: tuple[tir.Expr, ...] = tuple(
        tir.AccessPtr(t, tir.IntImm(0, INT64), 50, access) for access in ("r", "w")
    )
    body: tir.Stmt = tir.PrimFuncCall(
        "conv2d_3", (*args, tir.IntImm(5, INT64)), Span("m", 0, 1), 0
    )
    source = tir.AccessPtr(sram, tir.IntImm(128, INT64), 50, "rw")
    body = tir.Allocate(
        tir.Buffer("u", INT8, (4,)), tir.DeclBuffer(t, source, body), "activation"
    )
    return tir.PrimFunc("run", (tir.Param(sram, "pool"),), body, {"aot_main": True})


def graph() -> Function:
    device = VirtualDevice("cpu", 0, "m4", "sram")
    per_channel = Quantization((0.1, 1e-7, 3.0), (0, 0, 0), axis=0)
    x = Value(
        "serving default:0",
        TensorType((1, 8), INT8, Quantization((0.007843137718737125,), (-1,))),
    )
    w = Value(
        "w", TensorType((3, 8), INT8, per_channel), constant="w", virtual_device=device
    )
    y = Value(
        "y", TensorType((1, 3), INT8), virtual_device=VirtualDevice(memory_scope="dtcm")
    )
    z = Value("z", TensorType((), FLOAT32))
    calls = (
        OpCall(
            "fc",
            (x, w, None),
            (y,),
            attrs_from_mapping("fc", {"axes": (1, -1)}),
            Span("m", 0, 4, "y"),
            "m4",
        ),
        OpCall("@conv2d_3", (y, w), (z,)),
        OpCall("odd op!", (), ()),
    )
    return Function("main", (x,), calls, (z, x), {"note": 'π \\ "q"\n'})


def whole() -> IRModule:
    kernel, constants = conv()
    kind = TensorType((1, 8), INT8, Quantization((0.5,), (3,)))
    live = (LiveRange(0, 3), LiveRange(5, 7))
    plan = Plan(
        "search",
        {"run.t": Placement("sram", 128)},
        {"sram": 4096},
        400,
        (BufferInfo("run.t", 50, 4, live, "activation", ("sram", "dtcm")),),
        (
            OffsetConstraint("run.t", "run.u", -50, 4),
            OffsetConstraint("a", "b c", -1, 2, 8, 3),
        ),
    )
    w = Constant.from_array("w", np.zeros((3, 8)), INT8)
    more = {
        "w": w,
        "same": replace(w, name="same"),
        "empty": Constant("empty", INT8, (0,), b""),
    }
    flash = PoolInfo("flash", None, "ro", ("m4",), 0.5, 1.0, 3, 0, "port", ".rodata")
    tensors = (IoTensor("in:0", "input_1", kind),), (IoTensor("o", "out", kind),)
    return IRModule(
        "kws",
        {"main": graph(), "conv2d_3": kernel, "run": main()},
        {**constants, **more},
        {"m4": Target("cortex-m", (("dsp", True), ("mcpu", "cortex-m4"), ("n", 3)))},
        (PoolInfo("sram", 4096), flash),
        IoBinding("caller", True, *tensors),
        plan,
        entry_name="run",
        settings=Settings(link_params=False),
        attrs={"x": -0.0},
    )


def test_a_module_with_every_feature_round_trips() -> None:
    module = whole()
    text = print_module(module)
    assert parse_module(text) == module
    assert print_module(parse_module(text)) == text
    assert max(map(len, text.splitlines())) <= 100


def test_equal_constants_are_written_once() -> None:
    text = print_module(whole())
    digest = whole().constants["w"].digest
    assert (
        text.count(f"sha256.{digest}") == 3
    )  # two entries of the table, one of the data


def test_elided_constants_need_structure_only() -> None:
    text = print_module(whole(), elide_constants=True)
    shape = parse_module(text, structure_only=True)
    assert shape.functions == whole().functions
    assert shape.constants["conv2d_3.w"].size_bytes == 72
    with pytest.raises(
        ModelError, match=r"m.fwir:\d+:\d+: the bytes of constant 'conv2d_3.w' are"
    ):
        parse_module(text, "m.fwir")


def test_corrupt_data_fails_the_hash_check() -> None:
    text = print_module(whole())
    with pytest.raises(ModelError, match="do not match their hash"):
        parse_module(text.replace("AAECAwQF", "AAECAwQG"))


def test_another_format_version_is_rejected() -> None:
    said = "f:1:15: the text has version 1 of the format, expected 2. Try: save the module again"
    with pytest.raises(ModelError, match=said):
        parse_module("firmwright ir 1\nmodule @m\n", "f")


# ---- random functions ----------------------------------------------------------------

DTYPES = (INT8, UINT8, INT16, INT32, INT64, FLOAT32, BOOL)
OPS = (
    "add",
    "sub",
    "mul",
    "div",
    "mod",
    "min",
    "max",
    "shl",
    "shr",
    "and",
    "or",
    "xor",
    "lt",
    "le",
    "gt",
    "ge",
    "eq",
    "ne",
)
X = tir.Buffer("for", INT8, (4, 4), (8, 1), "dtcm x", 2)
ACC = tir.Buffer("acc", INT32, (4,), scope="reg")
SCALAR = tir.Buffer("op", FLOAT32, ())


def random_expr(rng: random.Random, depth: int) -> tir.Expr:
    """Return a random tree, well typed or not: text must preserve invalid trees."""
    dtype = rng.choice(DTYPES)
    if depth == 0 or rng.random() < 0.15:
        leaves: list[tir.Expr] = [
            tir.IntImm(rng.choice([0, 1, -1, 127, -(2**63)]), dtype),
            tir.FloatImm(
                rng.choice([0.0, -0.0, 1e20, 0.1, float("inf"), -1e-9]), dtype
            ),
            tir.Var(rng.choice(["i", "n", "min", "a b"]), INT64),
            tir.BufferLoad(SCALAR, ()),
        ]
        return rng.choice(leaves)
    a, b, c = (random_expr(rng, depth - 1) for _ in range(3))
    match rng.randrange(8):
        case 0:
            return tir.Not(a)
        case 1:
            return tir.Cast(dtype, a)
        case 2:
            return tir.Select(a, b, c)
        case 3:
            return tir.BufferLoad(rng.choice([X, ACC]), (a, b))
        case 4:
            return tir.IntrinsicCall(
                rng.choice(["smlad", "min", "vendor.op", "odd name"]), (a, b), dtype
            )
        case _:
            return tir.Binary(rng.choice(OPS), a, b)  # type: ignore[arg-type]  # chosen from its values


def random_stmt(rng: random.Random, depth: int) -> tir.Stmt:
    e, f = random_expr(rng, 2), random_expr(rng, 2)
    if depth == 0:
        leaves: list[tir.Stmt] = [
            tir.BufferStore(rng.choice([X, ACC]), (e,), f),
            tir.Evaluate(
                tir.IntrinsicCall("smlad", (e, tir.AccessPtr(X, f, 3, "rw")), HANDLE)
            ),
            tir.Evaluate(tir.IntrinsicCall("if", (), INT32)),
            tir.PrimFuncCall("f g", (e, f), Span("x", 1, 2), rng.choice([-1, 4])),
            tir.Seq(()),
        ]
        return rng.choice(leaves)
    body, other = random_stmt(rng, depth - 1), random_stmt(rng, depth - 1)
    inner = tir.Buffer(f"b{depth}", INT16, (3,))
    match rng.randrange(9):
        case 0:
            kind = rng.choice(["serial", "unrolled", "vectorized"])
            zero = tir.IntImm(rng.choice([0, 2, -3]), rng.choice([INT64, INT32]))
            extent = rng.choice([tir.IntImm(5, INT64), tir.IntImm(-9, INT64), e])
            start = rng.choice([zero, f])
            return tir.For(
                tir.Var("i", rng.choice([INT64, INT32])), start, extent, body, kind
            )  # type: ignore[arg-type]  # one of the three
        case 1:
            return tir.If(e, body, rng.choice([other, None]))
        case 2:
            return tir.While(e, body)
        case 3:
            return tir.Let(tir.Var("n", rng.choice([INT64, INT32, FLOAT32])), e, body)
        case 4:
            return tir.Allocate(inner, body, rng.choice(["scratch", "reg", "ring"]))
        case 5:
            return tir.DeclBuffer(inner, tir.AccessPtr(X, e, 5, "w"), body)
        case 6:
            return tir.AllocateConst(inner, "c 1", body)
        case _:
            return tir.Seq((body, other)[: rng.choice([1, 2, 2])])


def test_random_functions_round_trip() -> None:
    """Variables are bound once outside, with the dtype that expressions use."""
    rng = random.Random(7)
    params = (
        *(tir.Param(b, "inout") for b in (X, ACC, SCALAR)),
        *(tir.Param(tir.Var(n, INT64), "scalar") for n in ("min", "a b")),
        *(tir.Param(tir.Var(n, INT64), "scalar") for n in ("i", "n")),
    )
    for number in range(500):
        body = _with_bound_types(random_stmt(rng, rng.randint(0, 4)))
        func = tir.PrimFunc(f"f {number}", params, body)
        module = IRModule("m", {func.name: func})
        text = print_module(module)
        assert parse_module(text) == module, text


def _with_bound_types(stmt: tir.Stmt) -> tir.Stmt:
    """Rename binders so that they do not shadow the parameters used by expressions."""
    match stmt:
        case tir.For(var, start, extent, body, kind):
            return tir.For(
                replace(var, name="loop"), start, extent, _with_bound_types(body), kind
            )
        case tir.Let(var, value, body):
            return tir.Let(replace(var, name="bound"), value, _with_bound_types(body))
        case tir.Seq(stmts):
            return tir.Seq(tuple(map(_with_bound_types, stmts)))
        case tir.If(cond, then, orelse):
            other = None if orelse is None else _with_bound_types(orelse)
            return tir.If(cond, _with_bound_types(then), other)
        case tir.While() | tir.Allocate() | tir.AllocateConst() | tir.DeclBuffer():
            return replace(stmt, body=_with_bound_types(stmt.body))
        case _:
            return stmt


def test_literals_take_the_dtype_of_their_neighbour() -> None:
    text = """func @f(out y: i16[4]) index(i32) {
      for i in 0..4 { y[i + 1] = select(y[i] > 3, 5, y[0]) }
    }"""
    func = parse_module(text, fragment=True).functions["f"]
    assert isinstance(func, tir.PrimFunc)
    assert isinstance(func.body, tir.For)
    y, i = func.params[0].value, tir.Var("i", INT32)
    assert isinstance(y, tir.Buffer)
    value = tir.Select(
        tir.Binary("gt", tir.BufferLoad(y, (i,)), tir.IntImm(3, INT16)),
        tir.IntImm(5, INT16),
        tir.BufferLoad(y, (tir.IntImm(0, INT32),)),
    )
    assert func.body.body == tir.BufferStore(y, ((ArithExpr(i) + 1).expr,), value)


# ---- broken texts --------------------------------------------------------------------

WRONG = [
    ("func @f() { x[0] = 1 }", "t:1:13: no buffer 'x' is declared here."),
    ("func @f(x: i8[1]) { x[j] = 1 }", "t:1:23: no variable 'j' is declared here."),
    ("func @f(x: i8[1]) {\n  x[0] = }", "t:2:10: found '}', expected an expression."),
    (
        "func @f(x: i9[1]) {}",
        "t:1:12: found 'i9', expected an element type such as i8 or f32.",
    ),
    (
        "func @f(foo x: i8[1]) {}",
        "expected one of in, out, inout, scratch, const, pool, scalar.",
    ),
    (
        "func @f(x: i8[1]) { for i in 2..x[0] {} }",
        "t:1:30: a range from here needs a count",
    ),
    ("func @f(x: i8[1]) { x[0] = 1 < 2 < 3 }", "comparisons do not chain"),
    ("func @f(x: i8[1]) { x[0] = f(1) }", "expected the result dtype of f"),
    ("func @f() {} func @f() {}", "t:1:19: function 'f' is defined twice."),
    ("graph @f() -> (%y) {}", "t:1:16: the result %y is not defined in this function."),
    (
        "graph @f() -> () { %y: i8[1] = neg(%x) }",
        "t:1:36: %x is used before its definition.",
    ),
    ("const @c = i8[2] [1, 2, 3]", "constant 'c' has 3 bytes, its type needs 2."),
    ("const @c = i8[2] [1, 300]", "not all of these values are of type i8."),
    ("pool @p {size=3}", "pool p has the unknown field 'size'."),
    ('plan "s" lower_bound 3 {', "found the end of the text, expected one of pool"),
    ("hello", "t:1:1: found 'hello', expected one of attrs, target"),
    ("data {\n  AAAA\n}", "t:2:1: found 'AAAA', expected `sha256.HEX:`."),
]


@pytest.mark.parametrize(("text", "message"), WRONG, ids=[text for text, _ in WRONG])
def test_a_syntax_error_reports_position_and_expected_token(
    text: str, message: str
) -> None:
    with pytest.raises(ModelError) as caught:
        parse_module(text, "t", fragment=True)
    assert message in str(caught.value)


DEEP = [
    "func @f(x: i8[1]) { x[0] = " + "(" * 100_000,
    "func @f(x: i8[1]) { x[0] = " + "!" * 100_000,
    "func @f(x: i8[1]) { x[0] = " + "cast(i8, " * 100_000,
    "func @f(x: i8[1]) { x[" + "x[" * 100_000,
    "func @f(x: i8[1]) { x[0] = 1" + " + 1" * 100_000 + "}",
    "func @f() {" + "while true {" * 100_000,
    "func @f() {" + "seq {" * 100_000,
    "func @f() {" + "if true {} else " * 100_000 + "{} }",
    "func @f() {" + "allocate x: i8[1] " * 100_000 + "}",
    "func @f() {" + "allocate x: i8[1] {" * 100_000,
    "attrs {a=" + "[" * 100_000,
]


@pytest.mark.parametrize("text", DEEP, ids=[text[:40] for text in DEEP])
def test_hostile_nesting_is_an_error(text: str) -> None:
    with pytest.raises(ModelError, match=r"deeper than|nested scopes|branches follow"):
        parse_module(text, fragment=True)


def test_damaged_text_is_parsed_or_rejected() -> None:
    rng = random.Random(3)
    text = print_module(whole())
    refused = read = 0
    for _ in range(400):
        broken = list(text)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(broken))
            match rng.randrange(3):
                case 0:
                    del broken[at : at + rng.randint(1, 30)]
                case 1:
                    broken[at:at] = rng.choice(
                        ["{", "}", "(", "-", "9", "%", '"', ":", "..", "if"]
                    )
                case _:
                    broken[at] = chr(rng.randrange(32, 300))
        try:
            parse_module("".join(broken))
        except ModelError as error:
            refused += bool(error.where)
        else:
            read += 1
    assert refused + read == 400
    assert refused > 200
