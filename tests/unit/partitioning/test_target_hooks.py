"""Hooks and phases: called once, in order, and restricted to their own functions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firmwright.base.dtypes import INT8
from firmwright.base.errors import UsageError
from firmwright.boards import load_board
from firmwright.flows.model.compilation import compile_for
from firmwright.ir import tir
from firmwright.ir.core import Constant, PoolInfo, Target
from firmwright.ir.graph.nodes import Function
from firmwright.ir.graph.patterns import op
from firmwright.ir.module import IRModule, Pass
from firmwright.ir.tir.traversal import prim_calls
from firmwright.partitioning.per_target_passes import PassTimer
from firmwright.partitioning.target_resolution import resolve_targets
from firmwright.targets.backend import Backend
from firmwright.targets.backend_registry import BACKENDS
from firmwright.targets.kernel_builder import BackendKernel
from firmwright.targets.target_kind import LoweredFunction, PassSelection
from tests.backends.toy_backends import Toy, chain, default_loops

pytestmark = pytest.mark.usefixtures("no_backends")
SUMS = {"sum": op("add")}
MODULE = chain(("add", "x z", "a"), ("tanh", "a", "b"), ("add", "b z", "c"))


def compiled(toy: Toy, module: IRModule = MODULE, **given):
    BACKENDS.register(toy)
    return compile_for(module, target=toy.name, **given)


def test_function_hook_is_called_once_for_equal_functions():
    seen = []

    def hook(function, module, target):
        seen.append(function.name)
        return default_loops(function, module, target)

    result = compiled(Toy(SUMS, hook=hook), watch=None)
    rows = result.metadata["operators"]
    assert [row["schedule"] for row in rows] == ["toy", rows[1]["schedule"], "toy"]
    assert seen == ["toy_add_0"]  # the other sum differs only in tensor names


def test_equal_functions_in_other_memory_have_kernels_of_their_own() -> None:
    """A hook may generate code by memory scope; three sums differ in scopes alone."""
    seen: list[tuple[str, ...]] = []

    def hook(function: Function, module: IRModule, target: Target) -> LoweredFunction:
        kernel = BackendKernel(function, module, target)
        scopes = tuple(
            kernel.scope(b) or "any" for b in (*kernel.inputs, *kernel.outputs)
        )
        seen.append(scopes)
        made = default_loops(function, module, target)
        attrs = {**made.function.attrs, "schedule": " ".join(scopes)}
        return replace(made, function=replace(made.function, attrs=attrs))

    module = chain(("add", "x z", "a"), ("add", "a z", "b"), ("add", "b z", "c"))
    pools = (PoolInfo("sram"), PoolInfo("fast"))
    done = compiled(
        Toy(SUMS, hook=hook), module, pools=pools, pool_assignments=(("b", "fast"),)
    )
    assert seen == [
        ("any", "any", "any"),
        ("any", "any", "fast"),
        ("fast", "any", "any"),
    ]
    plan = done.module.memory_plan
    for call in prim_calls(done.module.aot_main.body):
        assumed = str(done.module.functions[call.callee].attrs["schedule"]).split()
        buffers = [
            arg.buffer.name for arg in call.args if isinstance(arg, tir.AccessPtr)
        ]
        for scope, name in zip(assumed, buffers, strict=True):
            assert (scope == "fast") == (plan.placements[name].pool == "fast")


def test_a_hook_may_be_passes_over_the_module():
    def lower(module: IRModule) -> IRModule:
        for function in tuple(module.functions.values()):
            if function.attrs.get("target") == "toy":
                result = default_loops(function, module, module.targets["toy"])
                kernel = replace(
                    result.function, attrs={**result.function.attrs, "target": "toy"}
                )
                module = module.with_function(kernel)
        return module

    hook = (Pass("nothing", lambda module: module), Pass("lower", lower))
    plain = compiled(Toy(SUMS))
    assert compiled(Toy(SUMS, hook=hook)).tree.files == plain.tree.files


def altering(module: IRModule) -> IRModule:
    """Return a pass that changes functions of other targets."""
    main = module.functions["main"]
    return module.with_function(replace(main, attrs={**main.attrs, "touched": True}))


def test_hook_that_changes_another_targets_function_is_reported():
    with pytest.raises(UsageError) as error:
        compiled(Toy(SUMS, hook=Pass("alter", altering)))
    assert str(error.value) == (
        "toy: `lower` of target toy (alter) changed the function @main, which is of "
        "no target yet. Try: a pass that rebuilds functions with the attribute target='toy' alone."
    )


@pytest.mark.parametrize(
    "phase", ["post_partition", "after_scheduling", "after_planning"]
)
def test_phase_that_changes_another_targets_function_is_reported(phase):
    def alter(module: IRModule) -> IRModule:
        other = next(
            f for f in module.functions.values() if f.attrs.get("target") != "toy"
        )
        return module.with_function(
            replace(other, attrs={**other.attrs, "touched": True})
        )

    toy = Toy(SUMS, own_phases={phase: (Pass("alter", alter),)})
    with pytest.raises(
        UsageError, match=rf"the {phase} pass alter of target toy changed the func"
    ):
        compiled(toy)


def test_a_pass_may_not_change_constants_of_others_or_the_module():
    def overwrite(module: IRModule) -> IRModule:
        name, old = next(iter(module.constants.items()))
        new = Constant(name, old.dtype, old.shape, bytes(len(old.data)))
        return replace(module, constants={**module.constants, name: new})

    for change, what in (
        (overwrite, "the constant @"),
        (altered_settings, "the settings of the module"),
    ):
        toy = Toy(SUMS, own_phases={"post_partition": (Pass("change", change),)})
        with pytest.raises(UsageError, match=f"changed {what}"):
            compiled(
                toy, replace(MODULE, constants={"k": Constant("k", INT8, (1,), b"1")})
            )


def altered_settings(module: IRModule) -> IRModule:
    return replace(module, settings=replace(module.settings, planner="mine"))


@pytest.mark.parametrize(
    ("hook", "said"),
    [
        (
            Pass("nothing", lambda module: module),
            "no hook of target toy made a kernel of the func",
        ),
        (
            lambda function, module, target: LoweredFunction(
                replace(default_loops(function, module, target).function, params=())
            ),
            r"a kernel of @toy_add_0 with the parameters none, where the function has in float32",
        ),
    ],
)
def test_hook_with_a_missing_or_invalid_kernel_is_reported(hook, said):
    with pytest.raises(UsageError, match=said):
        compiled(Toy(SUMS, hook=hook))


def test_target_selects_the_passes_of_its_functions():
    ran = []

    def note(module: IRModule) -> IRModule:
        ran.append(module.results.stage)
        return module

    watch = PassTimer()
    choice = PassSelection(
        only=frozenset({"simplify", "unroll"}),
        skip=frozenset({"unroll"}),
        before={"usmp": (Pass("mine", note),)},
    )
    compiled(Toy(SUMS, passes=choice), stopwatch=watch)
    chosen = {row.name for row in watch.rows if row.target == "toy"}
    assert chosen == {"simplify", "usmp:mine"}
    assert {"unroll", "fold-pad"} <= {
        row.name for row in watch.rows if row.target == "cpu"
    }
    assert ran == ["cache-constants-in-ram"]
    wrong = Toy(SUMS, passes=PassSelection(skip=frozenset({"usmp"})))
    with pytest.raises(UsageError, match=r"target toy cannot select pass 'usmp'\."):
        compiled(wrong)


def test_a_pool_that_the_board_lacks_is_an_error():
    with pytest.raises(UsageError) as error:
        compiled(Toy(SUMS, pools=("tcm",)), board="mps2-an386")
    assert str(error.value).startswith(
        "the backend toy needs the pool tcm, which board mps2-an386 does not have (its pools: "
    )
    with pytest.raises(
        UsageError, match="Try: --pool tcm=BYTES, in addition to the others"
    ):
        compiled(Toy(SUMS, pools=("tcm",)))


def test_instances_of_one_kind_have_unique_names():
    BACKENDS.register(Toy(SUMS))
    table = resolve_targets(load_board("host"), "toy, toy, c")
    assert {name: target.kind for name, target in table.items()} == {
        "cpu": "c",
        "toy": "toy",
        "toy_1": "toy",
    }
    with pytest.raises(UsageError, match="two targets are cores: c and host"):
        resolve_targets(load_board("host"), "c,host")


def test_two_backends_of_one_name_are_refused():
    class Other(Backend):
        name = "toy"

        def lower(self, kernel):
            """Never asked."""

    BACKENDS.register(Toy(SUMS))
    BACKENDS.register(Toy(SUMS))
    with pytest.raises(
        UsageError, match=r"two backends are called toy: .*Toy and .*Other"
    ):
        BACKENDS.register(Other)


def test_a_backend_without_a_way_to_make_kernels_is_refused():
    class Idle(Backend):
        name = "idle"

    with pytest.raises(
        UsageError, match="backend idle: it has neither `lower` nor `generate`"
    ):
        BACKENDS.register(Idle)
