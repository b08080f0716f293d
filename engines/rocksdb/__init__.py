"""RocksDB, embedded: its folder, its OPTIONS, its log formats, and how a driver is to open it."""
