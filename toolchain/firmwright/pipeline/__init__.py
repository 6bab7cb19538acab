"""The one place that knows the order: a model goes in, planned module and C sources come out.

Every step is a `Pass` on the module. `passes_for` is the compiler; a module remembers the last
pass it went through (`attrs["stage"]`), so one that was saved goes on where it stopped, to the same
bytes.
"""

from firmwright.pipeline.compilation import (
    Bundle,
    Compilation,
    PassObserver,
    bundle,
    compile_model,
    pareto_front,
)
from firmwright.pipeline.configuration import configure_module
from firmwright.pipeline.model_loading import (
    complete_model,
    load_module,
    load_module_bytes,
    source_digest,
)
from firmwright.pipeline.options import C_APIS, NUMERICS, OPTIMIZE_GOALS, Options
from firmwright.pipeline.pass_list import passes_for, remaining_passes
from firmwright.pipeline.selection_oracle import make_lowering

__all__ = [
    "C_APIS",
    "NUMERICS",
    "OPTIMIZE_GOALS",
    "Bundle",
    "Compilation",
    "Options",
    "PassObserver",
    "bundle",
    "compile_model",
    "complete_model",
    "configure_module",
    "load_module",
    "load_module_bytes",
    "make_lowering",
    "pareto_front",
    "passes_for",
    "remaining_passes",
    "source_digest",
]
