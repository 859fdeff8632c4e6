"""Pure functions on tensors and counts: advantages, losses, coverage. No I/O, no models, no randomness.

Shape suffixes of the names: P prompts, G samples of a group, B rows, T tokens, V vocabulary, S strategies.
"""
