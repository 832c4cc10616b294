"""What a process takes from itself: files, network, privileges, resources. Linux, by system calls.

Everything here can only make the caller less able. Each step raises OSError where the machine does
not allow it, so a sandbox either is what it says or does not start.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import signal
import struct
import sys
from pathlib import Path
from typing import NoReturn, TypedDict

_LIBC = ctypes.CDLL(None, use_errno=True)

_NEW_MOUNTS, _NEW_UTS, _NEW_IPC = 0x00020000, 0x04000000, 0x08000000
_NEW_USER, _NEW_PIDS, _NEW_NET = 0x10000000, 0x20000000, 0x40000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT = 1, 2, 4, 32
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18
_MNT_DETACH = 2
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_SYS_MOUNT_SETATTR = 442  # one number on every architecture; Linux 5.12
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
_CAPABILITY_VERSION_3 = 0x20080522


SCRATCH = "/scratch"
"""The one folder that can be written; not /tmp, below which Python itself may lie."""


class ProcessLimits(TypedDict):
    """For each process of a sample."""

    cpu_s: int
    memory_bytes: int
    file_bytes: int
    processes: int
    open_files: int


class View(TypedDict):
    """The files that are seen: nothing but these, all read-only, and SCRATCH."""

    root: str
    """An empty folder outside, over which the new root is laid."""
    binds: list[tuple[str, str]]
    """(path outside, path inside)"""
    devices: list[str]
    links: list[tuple[str, str]]
    """(target, path inside)"""
    masks: list[str]
    """Folders inside that are shown empty."""
    scratch_bytes: int


def limit(limits: ProcessLimits) -> None:
    """Lower this process's limits; one above the hard limit becomes the hard limit."""
    cpu = limits["cpu_s"]
    for kind, soft, hard in (
        # Past the soft limit SIGXCPU, which code can ignore; a second later SIGKILL.
        (resource.RLIMIT_CPU, cpu, cpu + 1),
        (resource.RLIMIT_AS, limits["memory_bytes"], limits["memory_bytes"]),
        (resource.RLIMIT_FSIZE, limits["file_bytes"], limits["file_bytes"]),
        (resource.RLIMIT_NPROC, limits["processes"], limits["processes"]),
        (resource.RLIMIT_NOFILE, limits["open_files"], limits["open_files"]),
        (resource.RLIMIT_CORE, 0, 0),
    ):
        _, ceiling = resource.getrlimit(kind)
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        resource.setrlimit(kind, (soft, hard))


def die_with_parent(parent: int | None = None) -> None:
    """SIGKILL when the parent ends; at once if it is no longer `parent`."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os._exit(1)


def hide_memory() -> None:
    """No process without privileges may trace this one or read its memory."""
    _prctl(_PR_SET_DUMPABLE, 0)


def drop_privileges(uid: int | None) -> None:
    """Become `uid` (None: stay who we are), without capabilities and with no way to new ones."""
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    if sys.platform == "linux":
        header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
        _check(_LIBC.capset(header, bytes(24)), "capset")
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def enter_namespaces(view: View, parent: int) -> None:
    """Go on as process 1 of new mount, pid, network, IPC and UTS namespaces, seeing only `view`.

    The caller's own process waits outside and ends with the exit status of what goes on. Without
    root a user namespace is made for it. Raises OSError where the kernel does not allow it.
    """
    die_with_parent(parent)
    uid, gid = os.getuid(), os.getgid()
    user = 0 if os.geteuid() == 0 else _NEW_USER
    flags = user | _NEW_MOUNTS | _NEW_PIDS | _NEW_NET | _NEW_IPC | _NEW_UTS
    _check(_LIBC.unshare(flags), "unshare")
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    child = os.fork()
    if child:
        _wait_for(child)
    die_with_parent()
    _show_only(view)


def _wait_for(child: int) -> NoReturn:
    os.close(0)
    os.close(1)
    _, status = os.waitpid(child, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _show_only(view: View) -> None:
    os.umask(0o022)
    root = view["root"]
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    _mount("tmpfs", root, "tmpfs", _MS_NOSUID | _MS_NODEV, "size=1m,mode=755")
    for source, inside in view["binds"]:
        _bind(source, root + inside, _MS_RDONLY | _MS_NOSUID | _MS_NODEV)
    for device in view["devices"]:
        _bind(device, root + device, _MS_RDONLY | _MS_NOSUID)
    for target, inside in view["links"]:
        Path(root + inside).symlink_to(target)
    for inside in view["masks"]:
        flags = _MS_RDONLY | _MS_NOSUID | _MS_NODEV
        _mount("tmpfs", root + inside, "tmpfs", flags, "size=4k,mode=755")
    scratch = root + SCRATCH
    Path(scratch).mkdir()
    options = f"size={view['scratch_bytes']},mode=1777"
    _mount("tmpfs", scratch, "tmpfs", _MS_NOSUID | _MS_NODEV, options)
    _mount(None, root, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)
    os.chdir(root)
    _check(_LIBC.pivot_root(b".", b"."), "pivot_root")
    _check(_LIBC.umount2(b".", _MNT_DETACH), "umount2")
    os.chdir(SCRATCH)


def _bind(source: str, target: str, attributes: int) -> None:
    """Bind with what is mounted below it; the attributes hold for all of it."""
    if Path(source).is_dir():
        Path(target).mkdir(parents=True, exist_ok=True)
    else:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(target).touch()
    _mount(source, target, None, _MS_BIND | _MS_REC)
    # struct mount_attr: attr_set, attr_clr, propagation, userns_fd. MOUNT_ATTR_* equal MS_* here.
    attr = struct.pack("QQQQ", attributes, 0, 0, 0)
    _check(
        _LIBC.syscall(
            ctypes.c_long(_SYS_MOUNT_SETATTR),
            ctypes.c_long(_AT_FDCWD),
            os.fsencode(target),
            ctypes.c_long(_AT_RECURSIVE),
            attr,
            ctypes.c_size_t(len(attr)),
        ),
        f"mount_setattr {target}",
    )


def _mount(
    source: str | None, target: str, kind: str | None, flags: int, options: str | None = None
) -> None:
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind)]
    data = None if options is None else options.encode()
    _check(_LIBC.mount(*words, ctypes.c_ulong(flags), data), f"mount {target}")


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        zero = ctypes.c_ulong(0)
        done = _LIBC.prctl(option, ctypes.c_ulong(value), zero, zero, zero)
        _check(done, f"prctl {option}")


def _check(returned: int, what: str) -> None:
    if returned != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


# By machine: AUDIT_ARCH, the numbers that are refused, clone, clone3. Sockets because not every
# family belongs to a network namespace (vsock); the others because they reach into other processes
# or open much of the kernel, and no program that answers a coding problem needs them: socket,
# ptrace, process_vm_readv and _writev, unshare, setns, bpf, add_key, request_key, keyctl,
# userfaultfd, perf_event_open, io_uring_setup.
_REFUSED: dict[str, tuple[int, tuple[int, ...], int, int]] = {
    "x86_64": (
        0xC000003E,
        (41, 101, 310, 311, 272, 308, 321, 248, 249, 250, 323, 298, 425),
        56,
        435,
    ),
    "aarch64": (
        0xC00000B7,
        (198, 117, 270, 271, 97, 268, 280, 217, 218, 219, 282, 241, 425),
        220,
        435,
    ),
}


def refuse_system_calls() -> None:
    """Refuse sockets, tracing and new namespaces, for this process and all it starts.

    A second wall behind the namespaces; on other machines than those of `_REFUSED` there is none.
    Needs `drop_privileges` first.
    """
    known = _REFUSED.get(platform.machine()) if sys.platform == "linux" else None
    if known is None:
        return
    program = _filter(*known)
    code = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: the number of instructions, padding, where they are.
    fprog = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    buffer = ctypes.create_string_buffer(fprog, len(fprog))
    zero = ctypes.c_ulong(0)
    mode = ctypes.c_ulong(2)  # SECCOMP_MODE_FILTER
    _check(_LIBC.prctl(_PR_SET_SECCOMP, mode, ctypes.byref(buffer), zero, zero), "seccomp")


def _filter(arch: int, refused: tuple[int, ...], clone: int, clone3: int) -> bytes:
    """A classic BPF program; offsets are those of struct seccomp_data."""
    load, equal, above, any_bit, answer = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, error, kill = 0x7FFF0000, 0x00050000, 0x80000000
    lines: list[tuple[int, int, int, int]] = [
        (load, 0, 0, 4),
        (equal, 1, 0, arch),
        (answer, 0, 0, kill),
        (load, 0, 0, 0),
        (above, 0, 1, 0x40000000),  # x32's numbers
        (answer, 0, 0, kill),
    ]
    for number in refused:
        lines += [(equal, 0, 1, number), (answer, 0, 0, error | errno.EPERM)]
    # glibc falls back to clone, whose flags a filter can see.
    lines += [(equal, 0, 1, clone3), (answer, 0, 0, error | errno.ENOSYS)]
    lines += [
        (equal, 0, 3, clone),
        (load, 0, 0, 16),
        (any_bit, 0, 1, _NEW_USER),
        (answer, 0, 0, error | errno.EPERM),
        (answer, 0, 0, allow),
    ]
    return b"".join(struct.pack("HBBI", *line) for line in lines)
