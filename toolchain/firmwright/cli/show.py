"""`firmwright show`: print a module after a pass."""

import argparse

from firmwright.cli import arguments
from firmwright.cli.verb import Outcome
from firmwright.flows.model.compilation import module_after, options_for
from firmwright.flows.model.model import write_file
from firmwright.ir.printer import print_module
from firmwright.partitioning.backend_libraries import with_backend_records


def run(args: argparse.Namespace) -> Outcome:
    model, options = arguments.prepare_compilation(args)
    module = module_after(model, args.after, options_for(model.module, options))
    recorded = with_backend_records(module)
    text = print_module(recorded, elide_constants=args.elide_constants)
    data = {"model": module.name, "after": args.after}
    if args.output:
        write_file(args.output, text.encode())
        written = f"{args.output}: after {args.after}"
        return Outcome({**data, "file": args.output}, written)
    return Outcome({**data, "text": text}, text.rstrip("\n"))
