"""One file an operator: attributes, type inference, numpy reference, default lowering, cases."""
