"""Connections to running firmware: transports, the link protocol, and sessions."""
