"""Stages of a user's own package, outside `stages/` and named by their dotted path, for tests of `tasks`."""
