"""Sampled completions with behaviour log-probabilities and verdicts."""
