"""How to record, crash, rebuild, recover and judge."""
