"""Operator definitions, one module per operator or family of related operators."""
