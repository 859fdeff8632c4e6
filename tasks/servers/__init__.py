"""Servers of Prefect and MLflow on this machine: a run's private one, and the pair of `up` and `down`."""
