"""An example accelerator that works concurrently with the core: backend `vanilla`."""
