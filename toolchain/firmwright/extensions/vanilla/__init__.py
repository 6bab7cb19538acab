"""An example accelerator that works concurrently with the core: the backend
`vanilla`.
"""
