"""One elite per (prompt, strategy) of a frozen base model."""
