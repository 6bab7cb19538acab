"""The check after every pass that it kept the placements that the user requested."""

from dataclasses import replace

from firmwright.base.errors import PluginError, UsageError
from firmwright.ir.module import IRModule, Pass
from firmwright.ir.verify_requests import diagnose_kept_requests


def with_checked_requests(step: Pass) -> Pass:
    """Return the pass with a check of the requests.

    It raises UsageError, or PluginError after a user's pass, for a request that is not
    kept.
    """

    def run(module: IRModule) -> IRModule:
        after = step.run(module)
        problems = diagnose_kept_requests(module, after)
        if problems:
            error = PluginError if step.origin else UsageError
            what = f"after the pass {step.name}, {'; '.join(problems)}."
            raise error(
                what,
                where=module.name,
                hint="omit the request, or place another tensor.",
            )
        return after

    return replace(step, run=run)
