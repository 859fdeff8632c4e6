"""Samples of a domain's prompts with their verdicts: where engines and domains meet."""
