"""A connection to MLflow that gives up fast: a dead server costs one short request, never a run.

The default is a SQLite file in the home folder; `MLFLOW_TRACKING_URI` names another server.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stages.errors import PosttrainError
from tasks.store.home import Home

if TYPE_CHECKING:
    from mlflow import MlflowClient

PROBE_S = 2  # the first request: is anybody there?
REQUEST_S = 30  # later ones, to a server that has answered


class TrackingUnreachable(PosttrainError):
    """MLflow cannot be reached or refused a request. Nothing is lost: a later sync fills the gap."""


@dataclass(frozen=True)
class Tracking:
    """An open connection. `artifacts` is the folder URI of new experiments, None where the server decides."""

    client: "MlflowClient"
    uri: str
    artifacts: str | None


def tracking_uri(home: Home) -> str:
    """What `MLFLOW_TRACKING_URI` says, else the SQLite file of the home folder."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{home.mlflow.resolve() / 'mlflow.db'}"


@contextmanager
def connect(home: Home, uri: str | None = None) -> Iterator[Tracking]:
    """A client of the tracking server and the registry behind it.

    Raises TrackingUnreachable when the server does not answer within PROBE_S, or fails later.
    """
    uri = uri or tracking_uri(home)
    local = uri.startswith("sqlite:")
    settings = {
        "MLFLOW_TRACKING_URI": uri,  # the registry's client asks the environment
        "MLFLOW_RUN_ID": None,  # would silently replace the parent of nested runs
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_ENABLE_ASYNC_LOGGING": "false",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
        "MLFLOW_HTTP_REQUEST_TIMEOUT": str(PROBE_S),
    }
    with _environment(settings):
        import mlflow
        from mlflow.exceptions import MlflowException
        from sqlalchemy.exc import SQLAlchemyError

        for name in ("mlflow", "alembic"):  # hundreds of lines on the first use of a database
            logging.getLogger(name).setLevel(logging.WARNING)
        home.mlflow.mkdir(parents=True, exist_ok=True)
        try:
            client = mlflow.MlflowClient(uri, os.environ.get("MLFLOW_REGISTRY_URI", uri))
            client.search_experiments(max_results=1)
            os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] = str(REQUEST_S)
            yield Tracking(client, uri, (home.mlflow / "artifacts").resolve().as_uri() if local else None)
        except (MlflowException, SQLAlchemyError, OSError) as error:
            raise TrackingUnreachable(
                f"MLflow at {uri} failed ({_first_line(error)}); nothing is lost, "
                "the manifests hold the lineage: run `posttrain lineage sync` when it is back"
            ) from error


@contextmanager
def _environment(settings: dict[str, str | None]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in settings}
    _set(settings)
    try:
        yield
    finally:
        _set(before)


def _set(settings: dict[str, str | None]) -> None:
    for name, value in settings.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0][:200]
