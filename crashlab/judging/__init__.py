"""From a recovered state to a verdict: the audit, the oracle, and what their findings add up to."""
