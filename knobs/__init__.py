"""What may be set: typed knobs with units, ranges, defaults, versions, durability meaning and sources."""
