"""Stages of a user's own package, as the tests of `tasks` run them: outside `stages/`, named by their dotted path."""
