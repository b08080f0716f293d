"""How to load and drive an instance, measure it, and keep the ledger of what was acknowledged."""
