"""The names of the passes of a compilation in pipeline order.

The stage table of docs/architecture.md describes the form of a module after each.
"""

PASS_NAMES = (
    "partition",
    "cse",
    "sink-transposes",
    "fold-scale",
    "fuse-activations",
    "fuse-expressions",
    "fold-transpose",
    "fold-pad",
    "graph-dce",
    "reorder-calls",
    "rematerialize",
    "pipeline-runs",
    "engine-split",
    "multi-core-split",
    "tile-transfers",
    "plan-devices",
    "elide-copies",
    "relay-to-runtime",
    "relay-to-tir",
    "plan-scopes",
    "lower-select",
    "after-scheduling",
    "unroll",
    "simplify",
    "narrow-index",
    "tir-dce",
    "merge-constants",
    "assign-constant-memory",
    "stage-constants",
    "async-device-calls",
    "cache-constants-in-ram",
    "usmp",
    "after-planning",
    "outline-common-kernels",
    "dedupe-functions",
    "externalize-constants",
    "tir-to-runtime",
    "final-dce",
)
SELECTABLE_GRAPH_PASSES = frozenset(
    {
        "sink-transposes",
        "fold-scale",
        "fuse-activations",
        "fuse-expressions",
        "fold-pad",
        "graph-dce",
    }
)
SELECTABLE_TIR_PASSES = frozenset({"unroll", "simplify", "narrow-index"})
SELECTABLE_PASSES = SELECTABLE_GRAPH_PASSES | SELECTABLE_TIR_PASSES
"""Passes that work function by function; a target kind may exclude its functions from these."""
