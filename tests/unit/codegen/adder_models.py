"""A small model, in several forms, and C programs that run it."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from firmwright.artifacts import SourceTree
from firmwright.base.dtypes import INT32
from firmwright.build.compiler_flags import WARNINGS
from firmwright.ir import tir
from firmwright.ir.core import Span
from firmwright.ir.module import IRModule
from firmwright.ir.tir.builder import Builder

GCC = "gcc" if shutil.which("gcc") else "cc"

COUNT = 8


def adder(name: str = "add_0", values: Any = None) -> Builder:
    """y = x + c."""
    b = Builder(name, Span("m.tflite"))
    x = b.buffer_param("x", INT32, (COUNT,), "in", 4)
    y = b.buffer_param("y", INT32, (COUNT,), "out", 4)
    c = b.constant("c", np.arange(COUNT) * 7 if values is None else values, INT32)
    with b.for_("i", COUNT) as i:
        b.store(y, [i], b.load(x, [i]) + b.load(c, [i]))
    return b


def caller_module(module_of: Any) -> IRModule:
    """The adder with inputs and outputs that are the caller's."""
    module = module_of(adder())
    x, y = (tir.Buffer(f"t_{n}", INT32, (COUNT,), alignment=4) for n in ("x", "y"))
    old = _call(module.entry)
    args = tuple(
        replace(arg, buffer=b) for arg, b in zip(old.args, (x, y), strict=True)
    )
    params = (tir.Param(x, "in"), tir.Param(y, "out"))
    main = tir.PrimFunc("run", params, replace(old, args=args), {"aot_main": True})
    io = replace(module.io, mode="caller")
    return replace(module.with_function(main), io=io)


def _call(main: Any) -> tir.PrimFuncCall:
    body = main.body
    while not isinstance(body, tir.PrimFuncCall):
        body = body.stmts[0] if isinstance(body, tir.Seq) else body.body
    return body


def unlinked_module(module_of: Any) -> IRModule:
    """The adder with its constant handed down from a main that links nothing."""
    module = module_of(adder())
    kernel = module.functions["add_0"]
    assert isinstance(kernel, tir.PrimFunc)
    assert isinstance(kernel.body, tir.AllocateConst)
    buffer, constant = kernel.body.buffer, kernel.body.constant
    lifted = replace(
        kernel,
        params=(*kernel.params, tir.Param(buffer, "const")),
        body=kernel.body.body,
    )
    main = module.entry
    assert isinstance(main, tir.PrimFunc)
    old = _call(main)
    pointer = replace(old.args[0], buffer=buffer, access="r")
    call = replace(old, args=(*old.args, pointer))
    body = tir.AllocateConst(buffer, constant, _replace_call(main.body, call))
    module = module.with_function(lifted).with_function(replace(main, body=body))
    return replace(module, settings=replace(module.settings, link_params=False))


def _replace_call(node: Any, call: tir.PrimFuncCall) -> Any:
    if isinstance(node, tir.PrimFuncCall):
        return call
    if isinstance(node, tir.Seq):
        return tir.Seq((call,))
    return replace(node, body=_replace_call(node.body, call))


def program(
    tmp_path: Path, tree: SourceTree, main: str, *flags: str, given: str = ""
) -> str:
    """Compile the model with a C main under gcc, ASan and UBSan; return its output."""
    tree.write(tmp_path)
    (tmp_path / "main.c").write_text(main)
    sources = [
        str(tmp_path / "main.c"),
        *map(str, sorted((tmp_path / "model").glob("*.c"))),
    ]
    sanitize = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    command = [
        GCC,
        "-std=c99",
        "-O1",
        *WARNINGS,
        *sanitize,
        f"-I{tmp_path / 'model'}",
        *flags,
    ]
    binary = tmp_path / "program"
    built = subprocess.run(
        [*command, "-o", str(binary), *sources],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    ran = subprocess.run(
        [str(binary)], input=given, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
