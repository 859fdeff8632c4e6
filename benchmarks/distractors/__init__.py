"""A domain in which only the first token of an answer counts: what moves behind it moves for no reason."""
