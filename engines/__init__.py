"""How to create, configure, start, read back, stop and kill one PostgreSQL or RocksDB instance."""
