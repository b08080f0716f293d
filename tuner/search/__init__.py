"""What is tried next and what counts: the space, the study, its trials, budget and claim."""
