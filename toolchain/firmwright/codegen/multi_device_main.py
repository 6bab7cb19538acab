"""C functions of a model that runs on several devices.

`NAME_run` activates the devices, keeps each open while it has calls in flight, starts
and awaits the calls, and deactivates the devices even if the run fails.
`NAME_on_DEVICE` executes one of a core's calls. With `fallback`, the main core executes
calls that a device rejects or aborts; otherwise the run fails.
"""

from dataclasses import replace

from firmwright.base.templates import render_template
from firmwright.codegen import function_printer
from firmwright.codegen.c_writer import format_lines
from firmwright.codegen.function_printer import AotMainPrinter
from firmwright.codegen.model_interface import DeviceCalls
from firmwright.codegen.stmt_printer import EmitContext, collect_used_names
from firmwright.ir import tir
from firmwright.ir.tir.traversal import statements


def print_multi_device_main(context: EmitContext, main: tir.PrimFunc) -> str:
    name = context.names.c("call_optional")
    head = f"static int32_t {name}(int32_t (*step)(void *context), void *context)"
    head = format_lines(head, 0)
    parts = [render_template("firmwright.codegen", "call_optional.c.j2", head=head)]
    for device in context.interface.devices:
        if device.is_copier:
            parts.append(_copy_device(context, device))
        else:
            parts.append(_on_device(context, main, device))
    fallback = context.module.settings.devices.has_fallback
    parts.append(_MultiDeviceRunPrinter(context, fallback=fallback).run(main))
    return "\n".join(parts)


# ---- functions of the devices --------------------------------------------------------


def _on_device(context: EmitContext, main: tir.PrimFunc, device: DeviceCalls) -> str:
    printer = _DeviceCallPrinter(context, ("call", "pools"))
    out = printer.out
    bodies = [_in_scopes(main.body, call) for call in device.calls]
    buffers: set[str] = set()
    for body in bodies:
        collect_used_names(body, buffers)
    pools = [param for param in main.params if param.role == "pool"]
    with out.function(context.definition("on_device", device.name)):
        printer.declare_params(pools, buffers)
        out.gap()
        out.line("switch (call) {")
        for number, body in enumerate(bodies):
            with out.block(f"case {number}:"), printer.scope.block():
                printer.main_body(body)
                out.line("break;")
        out.line("default:")
        with out.indent():
            out.line("break;")
        out.line("}")
    return out.text()


def _copy_device(context: EmitContext, device: DeviceCalls) -> str:
    """Print the functions with which a core or driver performs a device's copies."""
    copies: list[tuple[str, str, int]] = []
    for call in device.calls:
        source, target, *_ = call.args  # the others are sizes of a shared kernel
        assert isinstance(target, tir.AccessPtr)
        size_bytes = target.extent * target.buffer.dtype.size_bytes
        to, origin = _pool_address(context, target), _pool_address(context, source)
        copies.append((to, origin, size_bytes))
    return render_template(
        "firmwright.codegen",
        "copy_device.c.j2",
        copies=copies,
        device=device,
        names=context.names,
        definition=context.definition,
        c_line=format_lines,
    )


def _pool_address(context: EmitContext, argument: tir.Expr) -> str:
    assert isinstance(argument, tir.AccessPtr)
    assert isinstance(argument.offset, tir.IntImm)
    name = argument.buffer.name
    places = {place.buffer.name: place for place in context.interface.placed}
    place = places[name]
    first = argument.offset.value * place.buffer.dtype.size_bytes
    if place.direct and not first:
        return f"pools->{place.pool} + {context.interface.offset_macro(name)}"
    return f"pools->{place.pool} + {place.offset + first}"


def _in_scopes(body: tir.Stmt, call: tir.PrimFuncCall) -> tir.Stmt:
    inner: tir.Stmt = call
    for node in reversed(list(statements(body))):
        if isinstance(node, tir.DeclBuffer | tir.AllocateConst):
            inner = replace(node, body=inner)
    return inner


class _DeviceCallPrinter(AotMainPrinter):
    """A printer of the calls that a device executes, without probes."""

    __slots__ = ()

    def call_prim(self, node: tir.PrimFuncCall) -> None:
        self.out.line(self.kernel_call(node))


class _MultiDeviceRunPrinter(AotMainPrinter):
    """A printer of the main core's body, which starts and awaits others' calls."""

    __slots__ = ("devices", "fallback", "in_flight", "places")

    def __init__(self, context: EmitContext, *, fallback: bool) -> None:
        super().__init__(context, ("in", "out", "pools", "devices", "status", "over"))
        self.fallback = fallback
        self.devices = {device.name: device for device in context.interface.devices}
        self.places = {place.buffer.name: place for place in context.interface.placed}
        self.in_flight: dict[str, int] = dict.fromkeys(self.devices, 0)

    def run(self, main: tir.PrimFunc) -> str:
        out, macro = self.out, self.context.names.macro
        with out.function(self.context.definition("run")):
            self.check_arguments(("in", "out"))
            missing = ["devices == NULL"]
            for name in self.devices:
                missing.append(f"devices->{name}.start == NULL")
                missing.append(f"devices->{name}.wait == NULL")
            self.refuse(missing, "e_null")
            buffers: set[str] = set()
            module = self.context.module
            body = function_printer.without_constant_copies(module, main.body)
            collect_used_names(self.own(body), buffers)
            self.declare_params(main.params, buffers)
            if not self.fallback:
                out.line("int32_t status = 0;")
            out.gap()
            for device in self.devices:
                self._notify(device, "activate")
            self.main_body(main.body)
            out.gap()
            if not self.fallback:
                out.raw("over:")
            for device in self.devices:
                out.line(f"(void){self._callback(device, 'deactivate')};")
            if self.fallback:
                self.return_status("ok")
            else:
                out.line(f"return status == 0 ? {macro('ok')} : {macro('e_device')};")
        return out.text()

    def own(self, body: tir.Stmt) -> tir.Stmt:
        return function_printer.without_calls(body, lambda call: bool(call.device))

    def call_prim(self, node: tir.PrimFuncCall) -> None:
        if not node.device:
            super().call_prim(node)
            return
        if node.phase != "wait":
            self._start(node)
        if node.phase != "start":
            self._await(node)

    def result(self, param: tir.Param, arg: tir.AccessPtr) -> str:
        """Return the pool address of a device's output, which has no local name."""
        place = self.places.get(arg.buffer.name)
        if arg.buffer.name in self.used_names or place is None:
            return super().result(param, arg)
        offset = str(place.offset)
        if place.direct:
            offset = self.context.interface.offset_macro(arg.buffer.name)
        return f"pools->{place.pool} + {offset}"

    def _callback(self, device: str, function: str) -> str:
        optional = self.context.names.c("call_optional")
        return f"{optional}(devices->{device}.{function}, devices->{device}.context)"

    def _notify(self, device: str, function: str) -> None:
        """Call a device callback; without `fallback`, a failure ends the run."""
        if self.fallback:
            self.out.line(f"(void){self._callback(device, function)};")
        else:
            self._end_run_unless_zero(self._callback(device, function))

    def _start(self, node: tir.PrimFuncCall) -> None:
        device = self.devices[node.device]
        self.announce(node, f", on {device.name}")
        if not self.in_flight[device.name]:
            self._notify(device.name, "open")
        self.in_flight[device.name] += 1
        number, struct = device.number(node), f"devices->{device.name}"
        start = f"{struct}.start({struct}.context, {number}, pools)"
        if not self.fallback:
            self._end_run_unless_zero(start)
            return
        self.out.line(f"const int {self._rejected(node)} = {start} != 0;")
        self._execute_if(self._rejected(node), node)

    def _await(self, node: tir.PrimFuncCall) -> None:
        device = self.devices[node.device]
        if node.phase == "wait":
            self.out.gap()
        probe = self.probe(node)
        if probe:
            self.out.line(probe.format(phase=0))
        struct = f"devices->{device.name}"
        wait = f"{struct}.wait({struct}.context, {device.number(node)})"
        if self.fallback:
            self._execute_if(f"!{self._rejected(node)} && {wait} != 0", node)
        else:
            self._end_run_unless_zero(wait)
        if probe:
            self.out.line(probe.format(phase=1))
        self.in_flight[device.name] -= 1
        if not self.in_flight[device.name]:
            self.out.line(f"(void){self._callback(device.name, 'close')};")

    def _end_run_unless_zero(self, call: str) -> None:
        self.out.line(f"status = {call};")
        with self.out.block("if (status != 0)"):
            self.out.line("goto over;")

    def _rejected(self, node: tir.PrimFuncCall) -> str:
        return f"{node.device}_{self.devices[node.device].number(node)}_here"

    def _execute_if(self, condition: str, node: tir.PrimFuncCall) -> None:
        """Emit an `if` in which the main core executes the device's call."""
        function, number = f"on_{node.device}", self.devices[node.device].number(node)
        with self.out.block(f"if ({condition})"):
            self.out.line(f"{self.context.names.c(function)}({number}, pools);")
