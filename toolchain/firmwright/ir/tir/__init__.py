"""The loop level of the IR (TVM's TIR): buffers, loops and stores."""

from firmwright.ir.tir.nodes import *  # noqa: F403  # the package is the namespace of its nodes
