"""pass@k, distinct@k and both@k of each prompt."""
