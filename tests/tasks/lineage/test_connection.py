import os
import socket
import time

import pytest

from tasks.lineage.connection import TrackingUnreachable, connect
from tasks.lineage.project import sync_quietly


@pytest.fixture
def silent_port():
    """Somebody listens and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


@pytest.fixture
def closed_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


@pytest.mark.parametrize("port", ["silent_port", "closed_port"])
def test_a_dead_server_costs_less_than_three_seconds(home, port, request):
    uri = f"http://127.0.0.1:{request.getfixturevalue(port)}"
    begun = time.monotonic()
    with pytest.raises(TrackingUnreachable, match="posttrain lineage sync"), connect(home, uri):
        pytest.fail("connected to nothing")
    assert time.monotonic() - begun < 3


def test_a_run_is_told_in_one_sentence(pipeline, closed_port, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{closed_port}")
    sentence = sync_quietly(pipeline.home, pipeline.run_id)
    assert sentence is not None and "nothing is lost" in sentence and "\n" not in sentence


def test_the_environment_is_left_as_it_was(home, monkeypatch):
    monkeypatch.setenv("MLFLOW_RUN_ID", "of-somebody-else")
    before = dict(os.environ)
    with connect(home) as tracking:
        assert "MLFLOW_RUN_ID" not in os.environ
        assert tracking.artifacts is not None and tracking.artifacts.startswith(home.mlflow.as_uri())
    assert dict(os.environ) == before
