"""What all loads of PostgreSQL share: how a server is made ready, and how a crashed one is read back."""
