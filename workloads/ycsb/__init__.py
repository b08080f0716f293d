"""YCSB's core workloads, driven by a native program over RocksDB or PostgreSQL."""
