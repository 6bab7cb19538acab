"""LabWired, a simulator of vendor chips, as the transport `labwired`."""
