"""The one place that knows the order: a model goes in, planned module and C sources come out.

Every step is a `Pass` on the module. `passes_for` is the compiler; a module remembers the last
pass it went through (`attrs["stage"]`), so one that was saved goes on where it stopped, to the same
bytes.
"""

from firmwright.pipeline.compiling import Bundle, Compiled, Watch, bundle, compile_model, pareto
from firmwright.pipeline.configuring import configured
from firmwright.pipeline.loading import completed, load, load_bytes, source_digest
from firmwright.pipeline.options import C_APIS, NUMERICS, OPTIMIZE_GOALS, Options
from firmwright.pipeline.passes import passes_for, remaining
from firmwright.pipeline.selecting import lowering_of

__all__ = [
    "C_APIS",
    "NUMERICS",
    "OPTIMIZE_GOALS",
    "Bundle",
    "Compiled",
    "Options",
    "Watch",
    "bundle",
    "compile_model",
    "completed",
    "configured",
    "load",
    "load_bytes",
    "lowering_of",
    "pareto",
    "passes_for",
    "remaining",
    "source_digest",
]
