"""The environment of Prefect and MLflow: all inside the home folder, no telemetry, patient time-outs."""

import os
from collections.abc import Mapping

from tasks.store.home import Home

PATIENCE_S = 180

NO_TELEMETRY = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "GX_ANALYTICS_ENABLED": "false",
    "VLLM_NO_USAGE_STATS": "1",
}


def prefect_settings(home: Home) -> dict[str, str]:
    """What both a Prefect client and a Prefect server of this home are told. What the user set wins."""
    ours = {
        **NO_TELEMETRY,
        "PREFECT_HOME": str(home.prefect),
        "PREFECT_LOCAL_STORAGE_PATH": str(home.prefect / "storage"),
        "PREFECT_API_REQUEST_TIMEOUT": str(PATIENCE_S),
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": str(PATIENCE_S),
        # our own lines tell what happens; Prefect's go to its API, where the UI shows them
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
        "PREFECT_LOGGING_HANDLERS_DEBUG_LEVEL": "CRITICAL",
        "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    }
    return {name: os.environ.get(name, value) for name, value in ours.items()}


def apply(settings: Mapping[str, str]) -> None:
    """Put settings into this process's environment. Prefect reads it once, when it is first imported."""
    os.environ.update(settings)


def server_environment(home: Home) -> dict[str, str]:
    """The environment of a Prefect server over the SQLite file of this home."""
    inherited = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    return {
        **inherited,
        **prefect_settings(home),
        "PREFECT_API_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{home.prefect / 'prefect.db'}",
        "PREFECT_SERVER_DATABASE_TIMEOUT": "60",
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "WARNING",
    }
