"""Where an artefact came from: manifests projected into MLflow, registered versions, audits and differences.

Manifests are the ledger; MLflow is a view of them that may be missing, behind, or rebuilt at any time.
"""
