"""The passes of a compilation in pipeline order.

The pipeline and the stage table of docs/architecture.md are derived from this list.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class PassEntry:
    """A pass and a description of the module after it.

    `selectable` gives the level of a pass that works function by function; a target kind may
    exclude its functions from such a pass.
    """

    name: str
    form: str
    selectable: Literal["", "graph", "tir"] = ""


PASSES = (
    PassEntry(
        "partition",
        "each group of calls that a backend takes is a function with the attributes `target`, "
        "`symbol` and `composite`, called by `main`",
    ),
    PassEntry("cse", "calls that compute the same value are merged"),
    PassEntry(
        "sink-transposes",
        "transposes have moved down until they cancel, become views or reach a boundary",
        "graph",
    ),
    PassEntry("fold-scale", "per-channel factors are part of the preceding convolution", "graph"),
    PassEntry("fuse-activations", "float relus are part of the preceding operator", "graph"),
    PassEntry("fuse-expressions", "adjacent expressions are one expression", "graph"),
    PassEntry("fold-transpose", "expressions read and write through permutations"),
    PassEntry("fold-pad", "pads are part of the padding of convolutions", "graph"),
    PassEntry("graph-dce", "unused calls and constants are removed", "graph"),
    PassEntry("reorder-calls", "calls are in an order with fewer live bytes"),
    PassEntry(
        "rematerialize",
        "with `--recompute`: the input of a squeeze-and-excite block is computed twice",
    ),
    PassEntry("multi-core-split", "with several cores: large calls are split across them"),
    PassEntry("tile-transfers", "transfers to accelerators are split into row tiles"),
    PassEntry("plan-devices", "every value has a device, with copies between memories"),
    PassEntry("elide-copies", "splits and concatenations whose parts can be views are marked"),
    PassEntry(
        "relay-to-runtime",
        "functions of backends with this hook are C files and PrimFuncs that call them",
    ),
    PassEntry("relay-to-tir", "functions of backends with this hook are PrimFuncs"),
    PassEntry("plan-scopes", "the values of these functions have devices and memories too"),
    PassEntry(
        "lower-select",
        "the graph is gone. Kernels are PrimFuncs named after operator and index (`conv2d_0`). The "
        "AOT main `run` allocates every tensor and calls the kernels in order; a reshape is a view",
    ),
    PassEntry("after-scheduling", "passes that targets add after scheduling have run"),
    PassEntry("unroll", "loops marked `unrolled` are unrolled", "tir"),
    PassEntry("simplify", "expressions and statements are simplified", "tir"),
    PassEntry("narrow-index", "indices proven to fit are 32 bits wide", "tir"),
    PassEntry("tir-dce", "unused buffers, lets, functions and constants are removed"),
    PassEntry("merge-constants", "equal constants are one"),
    PassEntry("assign-constant-memory", "with `--const-pool`: every constant names its pool"),
    PassEntry(
        "stage-constants",
        "with `--const-pool`: kernels take constants outside the image as parameters, and a "
        "`const_load` copies those that cannot be addressed to an allocated buffer",
    ),
    PassEntry("async-device-calls", "calls on other devices are a start and a wait"),
    PassEntry(
        "cache-constants-in-ram",
        "with `--optimize speed` and slow program memory: `run` first copies constants to RAM",
    ),
    PassEntry(
        "usmp",
        "kernels allocate no memory: scratch is a parameter. Each allocation of `run` is a view at "
        "an offset of a pool, pools are parameters of `run`, and `module.plan` is set",
    ),
    PassEntry("after-planning", "passes that targets add after memory planning have run"),
    PassEntry(
        "outline-common-kernels",
        "kernels that differ only in shapes share a C function (attribute `code`) and take the "
        "shapes as parameters ([decision](decisions/0027-shape-parameters.md))",
    ),
    PassEntry(
        "dedupe-functions",
        "kernels that differ only in constants and a few scalars are one, with parameters",
    ),
    PassEntry(
        "externalize-constants", "with `--no-link-params`: `run` passes every constant to kernels"
    ),
    PassEntry("tir-to-runtime", "kernels of backends with this hook are in their final form"),
    PassEntry("final-dce", "code that the preceding passes left unused is removed"),
)

PASS_NAMES = tuple(entry.name for entry in PASSES)
SELECTABLE_GRAPH_PASSES = frozenset(e.name for e in PASSES if e.selectable == "graph")
SELECTABLE_TIR_PASSES = frozenset(e.name for e in PASSES if e.selectable == "tir")
SELECTABLE_PASSES = SELECTABLE_GRAPH_PASSES | SELECTABLE_TIR_PASSES


def format_stage_table() -> str:
    rows = [f"| `{entry.name}` | {entry.form} |" for entry in PASSES]
    return "\n".join(["| after | form |", "|---|---|", *rows])
