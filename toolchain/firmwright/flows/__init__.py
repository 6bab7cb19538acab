"""What each verb does, as plain functions over frozen values: between the pipeline and its front
doors (command line, Python API, benchmark)."""
