"""Bugs that are planted into engines, and whether the lab catches them."""
