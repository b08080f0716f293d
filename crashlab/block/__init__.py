"""The block recorder: a virtual disk with a volatile write cache, and a real file system on it."""
