"""The engines and workloads that the commands know: one file each, found by name in `registry.py`."""
