"""Contracts at stage boundaries: nothing that breaks one is committed."""
