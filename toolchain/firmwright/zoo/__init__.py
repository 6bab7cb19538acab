"""The catalog of public models, and their needs on boards."""
