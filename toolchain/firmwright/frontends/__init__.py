"""Frontends: a model file's container becomes IR. They decode; the operator files give meaning."""
