"""The loop level of the IR (TVM's TIR): buffers, loops, stores, and what executes them."""
