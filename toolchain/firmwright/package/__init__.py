"""The stage that makes a folder: emitted sources and their metadata in, a project on disk out."""
