"""The stage that writes C: a planned module in, a `SourceTree` out.

`module.emit` is the door; `module.model_id` names what it wrote. Kernels are printed from TIR
(`stmts`, `exprs`), the frames around them are templates.
"""
