"""Servers as real processes: they answer, they end with their owner, and only ours are ended."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from tasks.servers import child, local, prefect
from tasks.servers.child import ServerFailed
from tasks.servers.local import Running
from tasks.store.home import Home

SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]


def web(tmp_path, port: int) -> child.Server:
    return child.start(
        "the web server",
        [sys.executable, "-m", "http.server", str(port), "--bind", child.LOCALHOST],
        url=f"http://{child.LOCALHOST}:{port}",
        log=tmp_path / "logs" / "web.log",
        environment=os.environ,
    )


def test_a_server_is_awaited_and_ended(tmp_path):
    server = web(tmp_path, child.free_port())
    waited = []
    child.wait_until_it_answers(server, server.url, 30, lambda: waited.append(1))
    assert child.answers(server.url)
    child.stop(server)
    assert server.process.returncode == -signal.SIGTERM
    assert not child.answers(server.url)
    assert waited


def test_a_server_that_ends_at_once_is_told_with_its_last_line(tmp_path):
    with socket.socket() as taken:
        taken.bind((child.LOCALHOST, 0))
        taken.listen()
        server = web(tmp_path, taken.getsockname()[1])
        with pytest.raises(ServerFailed, match=r"ended with code 1 .* Address already in use"):
            child.wait_until_it_answers(server, server.url, 30)


def test_a_server_that_never_answers_is_ended(tmp_path):
    server = child.start(
        "the mute server", SLEEP, url="http://127.0.0.1:9", log=tmp_path / "log", environment=os.environ
    )
    with pytest.raises(ServerFailed, match="did not answer at"):
        child.wait_until_it_answers(server, server.url, 0.2)
    assert server.process.poll() is not None


def test_a_port_that_is_taken_is_not_handed_out():
    with socket.socket() as taken:
        taken.bind((child.LOCALHOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert child.free_port(port) != port
    assert child.free_port(port) == port


@pytest.mark.parametrize("outlives_us", [False, True])
def test_a_server_ends_with_its_owner_unless_it_is_to_outlive_it(tmp_path, outlives_us):
    """The owner is killed by SIGKILL, so nothing of it can clean up."""
    program = (
        "import os, sys, pathlib, time\nfrom tasks.servers import child\n"
        f"server = child.start('s', {SLEEP!r}, url='', log=pathlib.Path('log'), environment=os.environ, "
        f"outlives_us={outlives_us})\nprint(server.process.pid, flush=True)\ntime.sleep(600)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment
    ) as owner:
        assert owner.stdout is not None
        server = int(owner.stdout.readline())
        owner.kill()
    deadline = time.monotonic() + 5
    while local.born(server) is not None and time.monotonic() < deadline and not outlives_us:
        time.sleep(0.02)
    assert (local.born(server) is not None) is outlives_us
    if outlives_us:
        os.kill(server, signal.SIGKILL)


def test_down_ends_what_up_recorded_and_no_process_that_took_its_number(tmp_path):
    home = Home(tmp_path)
    with subprocess.Popen(SLEEP, start_new_session=True) as ours, subprocess.Popen(SLEEP) as stranger:
        running = [
            Running(name="prefect", url="http://x", pid=ours.pid, born=local.born(ours.pid), log=tmp_path),
            Running(name="mlflow", url="http://y", pid=stranger.pid, born=1, log=tmp_path),
        ]
        text = local._RECORDS.dump_json({server.name: server for server in running}).decode()
        (tmp_path / "servers.json").write_text(text)
        assert [server.name for server in local.down(home)] == ["prefect"]
        assert ours.wait(5) == -signal.SIGTERM
        assert stranger.poll() is None
        assert local.down(home) == []
        stranger.kill()


def test_a_run_takes_the_server_that_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(prefect, "apply", lambda settings: None)  # this process's environment stays as it is
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api/")
    server = prefect.for_run(Home(tmp_path))
    assert (server.api_url, server.private) == ("http://127.0.0.1:9/api", None)
    with pytest.raises(ServerFailed, match="does not answer: start it, or unset PREFECT_API_URL"):
        server.wait()


@pytest.mark.slow
def test_up_and_down_with_both_servers(tmp_path):
    home = Home(tmp_path)
    told: list[str] = []
    try:
        running = local.up(home, told.append)
        assert set(running) == {"prefect", "mlflow"}
        assert all(child.answers(server.url) for server in running.values())  # the UIs
        assert local.up(home, told.append) == running
        assert "Prefect is already up" in told
    finally:
        ended = local.down(home)
    assert {server.name for server in ended} == {"prefect", "mlflow"}
    assert not any(server.exists or child.answers(server.url) for server in ended)
