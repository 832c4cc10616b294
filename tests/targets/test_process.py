from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from peagle_bench.errors import ServerDied, ServerNotReady, WrongServer
from peagle_bench.targets.process import (
    Server,
    ServerSpec,
    end_orphans,
    free_port,
    log_cause,
)

HTTP = """
import http.server, json, sys, subprocess, signal
port, model = int(sys.argv[1]), sys.argv[2]
if "child" in sys.argv:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"data": [{"id": model}]}).encode()
        self.send_response(200); self.send_header("content-length", str(len(body)))
        self.end_headers(); self.wfile.write(body)
    def log_message(self, *a): pass
http.server.HTTPServer(("127.0.0.1", port), H).serve_forever()
"""


def spec(code: str, *words: str, port: int | None = None, served: str = "m") -> ServerSpec:
    port = port or free_port()
    words = tuple(str(port) if w == "PORT" else w for w in words)
    return ServerSpec(
        "P-EAGLE K=7", (sys.executable, "-c", code, *words), {}, "127.0.0.1", port, served
    )


@pytest.fixture
def log(tmp_path: Path, cache: Path) -> Path:
    return tmp_path / "server.log"


def listening(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_server_becomes_ready_and_stop_ends_its_whole_tree(log: Path) -> None:
    server = Server(spec(HTTP, "PORT", "m", "child"), log)
    server.start()
    server.wait_ready(20)
    assert server._process is not None
    tree = psutil.Process(server._process.pid).children(recursive=True)
    assert len(tree) == 1
    server.stop()
    assert not tree[0].is_running() or tree[0].status() == psutil.STATUS_ZOMBIE
    assert not listening(server.spec.port)


def test_a_server_that_ignores_sigterm_is_killed(log: Path) -> None:
    server = Server(spec(HTTP, "PORT", "m", "stubborn"), log)
    server.start()
    server.wait_ready(20)
    server.stop(grace_s=0.5)
    assert not listening(server.spec.port)


def test_a_server_that_dies_at_start_up_fails_at_once_with_its_cause(log: Path) -> None:
    code = (
        "import sys, time; print('loading'); time.sleep(0.5); "
        "print('torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB'); sys.exit(1)"
    )
    server = Server(spec(code), log)
    server.start()
    began = time.monotonic()
    with pytest.raises(ServerDied, match="exit code 1: torch.OutOfMemoryError: CUDA out of memory"):
        server.wait_ready(60)
    assert time.monotonic() - began < 20
    server.stop()


def test_a_server_that_never_answers_is_given_up_with_the_logs_end(log: Path) -> None:
    server = Server(spec("import time; print('still loading', flush=True); time.sleep(60)"), log)
    server.start()
    with pytest.raises(ServerNotReady, match="still loading"):
        server.wait_ready(1.0)
    server.stop()


def test_a_port_held_by_somebody_else_is_never_taken_for_ours(log: Path) -> None:
    port = free_port()
    other = subprocess.Popen([sys.executable, "-c", HTTP, str(port), "other"])
    try:
        while not listening(port):
            time.sleep(0.05)
        exited = Server(spec("import sys; sys.exit(3)", port=port), log)
        exited.start()
        with pytest.raises(ServerDied, match="exit code 3"):
            time.sleep(0.5)
            exited.wait_ready(10)
        alive = Server(spec("import time; time.sleep(60)", port=port), log)
        alive.start()
        with pytest.raises(WrongServer, match="serves other, not m"):
            alive.wait_ready(10)
        other.kill()
        other.wait()
        exited.stop()
        alive.stop()
    finally:
        other.kill()


def test_a_command_that_does_not_exist_is_a_server_error(log: Path) -> None:
    server = Server(ServerSpec("x", ("/no/such/binary",), {}, "127.0.0.1", free_port(), "m"), log)
    with pytest.raises(ServerDied, match="cannot start /no/such/binary"):
        server.start()
    server.stop()


@pytest.mark.parametrize(
    ("log_text", "cause"),
    [
        (
            "INFO ok\n(EngineCore pid=7) ERROR 11-30 21:40:00 [core.py:1] ValueError: bad head\n"
            "RuntimeError: Engine core initialization failed. See root cause above.\n",
            "ValueError: bad head",
        ),
        (
            "(APIServer pid=1) WARNING 12-01 00:04:41 [u.py:255] like `OSError: [Errno 24] Too`\n"
            "pydantic_core.ValidationError: 1 validation error for SpeculativeConfig\n"
            "  Value error, hidden size 320 does not fit 576\n",
            "pydantic_core.ValidationError: 1 validation error for SpeculativeConfig "
            "Value error, hidden size 320 does not fit 576",
        ),
        ("nothing wrong\n", None),
    ],
)
def test_the_cause_is_the_first_error_that_is_not_about_another(
    tmp_path: Path, log_text: str, cause: str | None
) -> None:
    path = tmp_path / "log"
    path.write_text(log_text)
    assert log_cause(path) == cause


HARNESS = """
import sys, time
from pathlib import Path
from peagle_bench.targets.process import Server, ServerSpec
code, port, log, *rest = sys.argv[1:]
command = (sys.executable, "-c", code, port, "m", *rest)
server = Server(ServerSpec("x", command, {}, "127.0.0.1", int(port), "m"), Path(log))
server.start(); server.wait_ready(20)
print("ready", flush=True); time.sleep(600)
"""


@pytest.mark.parametrize("kind", ["", "stubborn"])
def test_kill_9_of_the_harness_leaves_no_server_after_the_next_start(
    log: Path, tmp_path: Path, kind: str
) -> None:
    port = free_port()
    harness = subprocess.Popen(
        [sys.executable, "-c", HARNESS, HTTP, str(port), str(log), "child", kind],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert harness.stdout is not None
    assert harness.stdout.readline() == "ready\n"
    os.kill(harness.pid, signal.SIGKILL)
    harness.wait()
    end_orphans()
    deadline = time.monotonic() + 20
    while listening(port) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not listening(port)
    left = [p for p in psutil.process_iter(["cmdline"]) if str(port) in (p.info["cmdline"] or [])]
    assert [p for p in left if p.status() != psutil.STATUS_ZOMBIE] == []


def test_a_living_harness_keeps_its_servers(log: Path) -> None:
    server = Server(spec(HTTP, "PORT", "m"), log)
    server.start()
    server.wait_ready(20)
    assert end_orphans() == []
    server.check_alive()
    server.stop()


def test_a_reused_pid_is_never_touched(cache: Path) -> None:
    bystander = subprocess.Popen(["sleep", "60"], start_new_session=True)
    folder = cache / "servers"
    folder.mkdir(parents=True)
    (folder / f"{bystander.pid}.json").write_text(
        f'{{"pid": {bystander.pid}, "created": 1.0, "owner": 1, "owner_created": 1.0, "port": 1}}'
    )
    assert end_orphans() == []
    assert bystander.poll() is None
    assert list(folder.iterdir()) == []
    bystander.kill()
    bystander.wait()
