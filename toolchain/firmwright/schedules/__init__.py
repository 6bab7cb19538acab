"""Optimized kernels, one package per instruction set: `<family>/<operator>.py`.

A schedule is selected by operator and target features. It produces the same bits as the
default lowering.
"""
