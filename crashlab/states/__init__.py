"""From a write log to the content that a crash may leave: files and names, positions, folders."""
