"""The recorder that is loaded into the engine with LD_PRELOAD, and its canary."""
