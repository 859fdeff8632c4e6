"""A user's own flow, with recipes beside it, for the tests of the command line."""
