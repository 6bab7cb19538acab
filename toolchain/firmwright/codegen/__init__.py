"""C code generation, which turns a planned module into a `SourceTree`.

`model_emitter.emit_model` writes the sources. Kernels are printed from TIR
(`stmt_printer`, `expr_printer`); templates provide the rest of each file.
"""
