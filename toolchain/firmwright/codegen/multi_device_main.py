"""C functions of a model that runs on several devices.

`NAME_run` opens each device before its first call in flight, starts and awaits the calls, and
closes the device after the last one, also on errors. `NAME_on_DEVICE` executes one of a core's
calls. With `fallback`, the main core executes a call that a device rejects or aborts; otherwise the
run fails.
"""

from __future__ import annotations

from dataclasses import replace

from firmwright.codegen.c_names import LocalScope
from firmwright.codegen.c_writer import CWriter
from firmwright.codegen.device_calls import DeviceCalls, without_device_calls
from firmwright.codegen.expr_printer import ExprPrinter
from firmwright.codegen.function_printer import (
    AotMainPrinter,
    FunctionEmitter,
    without_constant_copies,
)
from firmwright.codegen.stmt_printer import collect_used_names
from firmwright.ir import tir
from firmwright.ir.tir.traversal import statements, used_buffers


def print_multi_device_main(emitter: FunctionEmitter, main: tir.PrimFunc, *, fallback: bool) -> str:
    parts = [_device_call_macros(emitter)]
    for device in emitter.interface.devices:
        if device.is_copier:
            parts += [_transfer(emitter, device), _copying(emitter, device)]
        else:
            parts.append(_on_device(emitter, main, device))
    parts.append(_run(emitter, main, fallback=fallback))
    return "\n".join(parts)


def _device_call_macros(emitter: FunctionEmitter) -> str:
    out = CWriter()
    out.comment(["Calls an optional function of a device."])
    name = emitter.names.c("call_optional")
    with out.function(f"static int32_t {name}(int32_t (*step)(void *context), void *context)"):
        out.line("return step == NULL ? 0 : step(context);")
    return out.text()


# ---- functions of the devices ------------------------------------------------------------------


def _on_device(emitter: FunctionEmitter, main: tir.PrimFunc, device: DeviceCalls) -> str:
    out = CWriter()
    exprs = ExprPrinter(emitter.names, emitter.intrinsics, emitter.used)
    scope = LocalScope(("call", "pools"))
    bodies = [_in_scopes(main.body, call) for call in device.calls]
    buffers: set[str] = set()
    for body in bodies:
        collect_used_names(body, buffers)
    with out.function(emitter.definitions.on_device(device.name)):
        for param in main.params:
            if param.role == "pool" and param.name in buffers:
                emitter.main_param(out, exprs, scope, param, used_buffers(main.body))
        out.gap()
        out.line("switch (call) {")
        for number, body in enumerate(bodies):
            with out.block(f"case {number}:"), scope.block():
                _DeviceCallPrinter(out, exprs, scope, emitter).main_body(body)
                out.line("break;")
        out.line("default:")
        with out.indent():
            out.line("break;")
        out.line("}")
    return out.text()


def _transfer(emitter: FunctionEmitter, device: DeviceCalls) -> str:
    out, names = CWriter(), emitter.names
    kind = f"struct {names.prefix}_transfer"
    with out.function(emitter.definitions.transfer_of(device.name)):
        out.line("switch (call) {")
        for number, call in enumerate(device.calls):
            out.line(f"case {number}:")
            with out.indent():
                source, target = (_place(emitter, arg) for arg in call.args)
                out.line(f"return ({kind}){{{target}, {source}, {_copied_bytes(call)}}};")
        out.line("default:")
        with out.indent():
            out.line(f"return ({kind}){{NULL, NULL, 0}};")
        out.line("}")
    return out.text()


def _place(emitter: FunctionEmitter, argument: tir.Expr) -> str:
    assert isinstance(argument, tir.AccessPtr)
    assert isinstance(argument.offset, tir.IntImm)
    place = next(p for p in emitter.interface.placed if p.buffer.name == argument.buffer.name)
    first = argument.offset.value * place.buffer.dtype.size_bytes
    if place.direct and not first:
        return f"pools->{place.pool} + {emitter.interface.offset_macro(argument.buffer.name)}"
    return f"pools->{place.pool} + {place.offset + first}"


def _copied_bytes(call: tir.PrimFuncCall) -> int:
    target = call.args[1]
    assert isinstance(target, tir.AccessPtr)
    return target.extent * target.buffer.dtype.size_bytes


def _copying(emitter: FunctionEmitter, device: DeviceCalls) -> str:
    """Print the function with which a core performs a copy device's copies."""
    out, names = CWriter(), emitter.names
    with out.function(emitter.definitions.on_device(device.name)):
        copies = f"{names.c(f'transfer_of_{device.name}')}(call, pools)"
        out.line(f"const struct {names.prefix}_transfer copy = {copies};")
        with out.block("if (copy.size_bytes != 0u)"):
            out.line("(void)memcpy(copy.to, copy.from, copy.size_bytes);")
    return out.text()


def _in_scopes(body: tir.Stmt, call: tir.PrimFuncCall) -> tir.Stmt:
    inner: tir.Stmt = call
    for node in reversed(
        [n for n in statements(body) if isinstance(n, tir.DeclBuffer | tir.AllocateConst)]
    ):
        inner = replace(node, body=inner)
    return inner


class _DeviceCallPrinter(AotMainPrinter):
    """A printer of a device's calls as that device executes them, without probes."""

    __slots__ = ()

    def call_prim(self, node: tir.PrimFuncCall) -> None:
        self.out.line(self.kernel_call(node))


# ---- the run -----------------------------------------------------------------------------------


def _run(emitter: FunctionEmitter, main: tir.PrimFunc, *, fallback: bool) -> str:
    out, io, names = CWriter(), emitter.interface, emitter.names
    exprs = ExprPrinter(names, emitter.intrinsics, emitter.used)
    scope = LocalScope(("in", "out", "pools", "devices", "status", "over"))
    printer = _MultiDeviceRunPrinter(out, exprs, scope, emitter, fallback=fallback)
    with out.function(emitter.definitions.run):
        emitter.checks(out, ("in", "out"))
        steps = [f"devices->{d.name}.{step}" for d in io.devices for step in ("start", "wait")]
        emitter.refuse(out, [f"{pointer} == NULL" for pointer in ("devices", *steps)], "e_null")
        buffers: set[str] = set()
        collect_used_names(printer.own(without_constant_copies(emitter.module, main.body)), buffers)
        for param in main.params:
            if param.name in buffers:
                emitter.main_param(out, exprs, scope, param, used_buffers(main.body))
        if not fallback:
            out.line("int32_t status = 0;")
        out.gap()
        for device in io.devices:
            printer.tell(device, "activate")
        printer.main_body(main.body)
        out.gap()
        if not fallback:
            out.raw("over:")
        for device in io.devices:
            out.line(f"(void){printer.step(device, 'deactivate')};")
        ok, wrong = names.macro("ok"), names.macro("e_device")
        out.line(f"return {ok};" if fallback else f"return status == 0 ? {ok} : {wrong};")
    return out.text()


class _MultiDeviceRunPrinter(AotMainPrinter):
    """A printer of the main core's body, which starts and awaits the calls of other devices."""

    __slots__ = ("devices", "fallback", "flying", "places")

    def __init__(
        self,
        out: CWriter,
        exprs: ExprPrinter,
        scope: LocalScope,
        emitter: FunctionEmitter,
        *,
        fallback: bool,
    ) -> None:
        super().__init__(out, exprs, scope, emitter)
        self.fallback = fallback
        self.devices = {device.name: device for device in emitter.interface.devices}
        self.places = {place.buffer.name: place for place in emitter.interface.placed}
        self.flying: dict[str, int] = dict.fromkeys(self.devices, 0)

    def own(self, body: tir.Stmt) -> tir.Stmt:
        return without_device_calls(body)

    def call_prim(self, node: tir.PrimFuncCall) -> None:
        if not node.device:
            super().call_prim(node)
            return
        if node.phase != "wait":
            self._begin(node)
        if node.phase != "start":
            self._await(node)

    def result(self, param: tir.Param, arg: tir.AccessPtr) -> str:
        """Return the pool address of a device's output, which has no local name."""
        place = self.places.get(arg.buffer.name)
        if arg.buffer.name in self.used_names or place is None:
            return super().result(param, arg)
        offset = str(place.offset)
        if place.direct:
            offset = self.emitter.interface.offset_macro(arg.buffer.name)
        return f"pools->{place.pool} + {offset}"

    def step(self, device: DeviceCalls, name: str) -> str:
        at = f"devices->{device.name}"
        return f"{self.emitter.names.c('call_optional')}({at}.{name}, {at}.context)"

    def tell(self, device: DeviceCalls, name: str) -> None:
        """Call a device callback; without `fallback`, a failure ends the run."""
        if self.fallback:
            self.out.line(f"(void){self.step(device, name)};")
        else:
            self._or_over(self.step(device, name))

    def _begin(self, node: tir.PrimFuncCall) -> None:
        device = self.devices[node.device]
        self.announce(node, f", on {device.name}")
        if not self.flying[device.name]:
            self.tell(device, "open")
        self.flying[device.name] += 1
        number, at = device.number(node), f"devices->{device.name}"
        begin = f"{at}.start({at}.context, {number}, pools)"
        if not self.fallback:
            self._or_over(begin)
            return
        self.out.line(f"const int {self._here(node)} = {begin} != 0;")
        with self.out.block(f"if ({self._here(node)})"):
            self.out.line(self._by_main(node))

    def _await(self, node: tir.PrimFuncCall) -> None:
        device = self.devices[node.device]
        if node.phase == "wait":
            self.out.gap()
        probe = self._probe(node, self._pairs(node))
        if probe:
            self.out.line(probe.format(phase=0))
        at = f"devices->{device.name}"
        end = f"{at}.wait({at}.context, {device.number(node)})"
        if self.fallback:
            with self.out.block(f"if (!{self._here(node)} && {end} != 0)"):
                self.out.line(self._by_main(node))
        else:
            self._or_over(end)
        if probe:
            self.out.line(probe.format(phase=1))
        self.flying[device.name] -= 1
        if not self.flying[device.name]:
            self.out.line(f"(void){self.step(device, 'close')};")

    def _or_over(self, call: str) -> None:
        self.out.line(f"status = {call};")
        with self.out.block("if (status != 0)"):
            self.out.line("goto over;")

    def _here(self, node: tir.PrimFuncCall) -> str:
        return f"{node.device}_{self.devices[node.device].number(node)}_here"

    def _by_main(self, node: tir.PrimFuncCall) -> str:
        """Return the statement with which the main core executes the call itself."""
        function = self.emitter.names.c(f"on_{node.device}")
        return f"{function}({self.devices[node.device].number(node)}, pools);"
