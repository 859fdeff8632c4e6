"""Wrong versions of the code by area; each module has `TESTS` and `MUTANTS`."""
