"""Who proposes, what is tried next, what counts, and how it is told: the commands and reports."""
