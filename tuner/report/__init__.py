"""How results are told: as the JSON documents that other programs rely on, and as text."""
