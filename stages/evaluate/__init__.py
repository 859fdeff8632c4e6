"""Measure a checkpoint on held-out prompts: accuracy, width and the capability matrix."""
