"""What crash states fell into, in two lines; the document has every cell."""

from __future__ import annotations

from crashlab.states.coverage import Coverage

MISSED_MAX = 3
"""Told by name; of the others only how many."""


def coverage_lines(found: Coverage) -> list[str]:
    """How many cells had a state, how many states fell to each event, and what had none."""
    at_events = ", ".join(f"{name} {states}" for name, states in found.event_states.items())
    told = found.missed[:MISSED_MAX]
    more = len(found.missed) - len(told)
    missed = ", ".join(told) + (f" and {more} more" if more else "")
    absent = f"not in this run: {', '.join(found.absent)}" if found.absent else ""
    second = "; ".join(filter(None, [f"no state: {missed}" if missed else "", absent]))
    return [
        f"coverage       {found.covered} of {len(found.operations)} (operation x role x phase)"
        + (f"; states at events: {at_events}" if at_events else ""),
        *([f"               {second}"] if second else []),
    ]
