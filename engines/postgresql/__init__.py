"""How to create, configure, start, read back, stop and kill one private PostgreSQL cluster."""
