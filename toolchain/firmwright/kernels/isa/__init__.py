"""Tables of instructions, one for each instruction set."""
