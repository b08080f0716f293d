"""From a running engine to a write log that may be believed."""
