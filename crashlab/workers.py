"""The threads that recover states: each waits for its engine most of the time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def workers_at_most() -> int:
    """How many states are recovered at a time: one more than there are cores, for each waits now and then for
    its engine to start or to stop."""
    return (os.cpu_count() or 1) + 1


def shared_out(
    items: Sequence[Item],
    work: Callable[[Sequence[Item], int], Sequence[Result]],
    is_given_up: threading.Event,
) -> list[Result]:
    """Everything that ``work`` makes of the items, which are shared out among the workers; it is told the
    number of its own.

    ``is_given_up`` is set where the caller is interrupted: then ``work`` is to end with the item that it is
    at. Raises what it raises.
    """
    workers = max(1, min(len(items), workers_at_most()))
    with ThreadPoolExecutor(workers) as pool:
        try:
            shares = [pool.submit(work, items[share::workers], share) for share in range(workers)]
            return [result for share in as_completed(shares) for result in share.result()]
        except BaseException:
            # An interrupt, mostly: leaving the pool waits for its workers.
            is_given_up.set()
            raise
