"""Runs a command and ends it with SIGKILL as it, or anything that it started, enters its Nth system call that changes something.

usage: kill-at.py N all|one LOG COMMAND...

The call is not carried out. `all` kills every process of it at that moment, `one` only the one that makes the call: the others go on.
The log has a line for each such call; the last one is `killed` or `ended STATUS`. strace(1) counts in each process for itself.
"""

import ctypes
import os
import platform
import re
import signal
import sys

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
CONT, SEIZE, GET_SYSCALL_INFO = 7, 0x4206, 0x420E
# TRACEFORK, TRACEVFORK, TRACECLONE, TRACEEXEC, TRACESECCOMP, EXITKILL
OPTIONS = 0x2 | 0x4 | 0x8 | 0x10 | 0x80 | 0x100000
EVENT_SECCOMP, OP_SECCOMP = 7, 3
WALL = 0x40000000

# name: number on x86-64, on arm64, argument of the path (or -1-n for descriptor n), whether a directory's descriptor comes before it
CALLS = {
    "open": (2, None, 0, False),
    "openat": (257, 56, 1, True),
    "creat": (85, None, 0, False),
    "write": (1, 64, -1, False),
    "pwrite64": (18, 68, -1, False),
    "copy_file_range": (326, 285, -3, False),
    "rename": (82, None, 1, False),
    "renameat": (264, 38, 3, True),
    "renameat2": (316, 276, 3, True),
    "unlink": (87, None, 0, False),
    "unlinkat": (263, 35, 1, True),
    "rmdir": (84, None, 0, False),
    "mkdir": (83, None, 0, False),
    "mkdirat": (258, 34, 1, True),
    "symlink": (88, None, 1, False),
    "symlinkat": (266, 36, 2, True),
    "link": (86, None, 1, False),
    "linkat": (265, 37, 3, True),
    "chmod": (90, None, 0, False),
    "fchmod": (91, 52, -1, False),
    "fchmodat": (268, 53, 1, True),
    "chown": (92, None, 0, False),
    "fchown": (93, 55, -1, False),
    "fchownat": (260, 54, 1, True),
    "truncate": (76, 45, 0, False),
    "ftruncate": (77, 46, -1, False),
}
COLUMN = 1 if platform.machine() == "aarch64" else 0
BY_NUMBER = {call[COLUMN]: (name, call[2], call[3]) for name, call in CALLS.items() if call[COLUMN] is not None}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# What is nobody's state, or dpkg's own before it counts.
NOTHING = re.compile(r"^(/dev/|/proc/|/sys/|/tmp/|/var/log/|/var/lib/dpkg/(tmp\.ci|updates/tmp)|[a-z_]+:|$)")


class Info(ctypes.Structure):
    _fields_ = [
        ("op", ctypes.c_uint8), ("pad", ctypes.c_uint8 * 3), ("arch", ctypes.c_uint32),
        ("ip", ctypes.c_uint64), ("sp", ctypes.c_uint64), ("nr", ctypes.c_uint64), ("args", ctypes.c_uint64 * 6),
        ("more", ctypes.c_uint64 * 2),
    ]  # fmt: skip


class Filter(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32)]


class Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_uint16), ("filter", ctypes.POINTER(Filter))]


def stop_at_calls():
    """Lets this process, and all that it starts, stop for its tracer at the calls above and at no other."""
    lines = [Filter(0x20, 0, 0, 0)]
    for number in BY_NUMBER:
        lines += [Filter(0x15, 0, 1, number), Filter(0x06, 0, 0, 0x7FF00000)]
    lines.append(Filter(0x06, 0, 0, 0x7FFF0000))
    program = Program(len(lines), (Filter * len(lines))(*lines))
    if libc.prctl(22, 2, ctypes.byref(program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


def link_of(path):
    try:
        return os.readlink(path)
    except OSError:
        return ""


def text_at(pid, address):
    with open(f"/proc/{pid}/mem", "rb", 0) as memory:
        memory.seek(address)
        data = b""
        while b"\0" not in data and len(data) < 4096:
            # Not beyond the page, which may be the last.
            size = 4096 - (address + len(data)) % 4096
            data += memory.read(size)
    return data.split(b"\0")[0].decode("utf-8", "replace")


def change_of(pid):
    """What the call that a process enters changes, or None."""
    info = Info()
    libc.ptrace(GET_SYSCALL_INFO, pid, ctypes.sizeof(info), ctypes.byref(info))
    if info.op != OP_SECCOMP or info.nr not in BY_NUMBER:
        return None
    name, at, has_folder = BY_NUMBER[info.nr]
    if at < 0:
        path = link_of(f"/proc/{pid}/fd/{ctypes.c_int(info.args[-1 - at]).value}")
    else:
        path = text_at(pid, info.args[at])
        if not path.startswith("/"):
            folder = ctypes.c_int(info.args[at - 1]).value if has_folder else -100
            path = os.path.join(link_of(f"/proc/{pid}/cwd" if folder == -100 else f"/proc/{pid}/fd/{folder}"), path)
    if name in ("open", "openat") and not info.args[at + 1] & WRITING:
        return None
    if NOTHING.match(path):
        return None
    # Made already, or gone.
    if name.startswith("mkdir") and os.path.lexists(path) or name.startswith(("unlink", "rmdir")) and not os.path.lexists(path):
        return None
    with open(f"/proc/{pid}/comm", encoding="utf-8") as comm:
        return f"{name} {path} ({comm.read().strip()})"


def main():
    at, mode, log_path, command = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]
    log = open(log_path, "w", encoding="utf-8", buffering=1)
    # Whose parent is gone is reaped here: a lock may bear the number of a process that seems to live otherwise.
    libc.prctl(36, 1, 0, 0, 0)
    seized, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(told)
        os.read(seized, 1)
        stop_at_calls()
        os.execvp(command[0], command)
    os.close(seized)
    libc.ptrace(SEIZE, child, None, OPTIONS)
    os.close(told)
    is_done, count, known, status = False, 0, {child}, None
    while True:
        try:
            pid, state = os.waitpid(-1, WALL)
        except ChildProcessError:
            break
        known.add(pid)
        if os.WIFEXITED(state) or os.WIFSIGNALED(state):
            known.discard(pid)
            if pid == child:
                status = os.waitstatus_to_exitcode(state)
            continue
        sig, event = os.WSTOPSIG(state), state >> 16
        if event == EVENT_SECCOMP and not is_done:
            change = change_of(pid)
            if change is not None:
                count += 1
                log.write(f"{change}\n")
                if count == at:
                    is_done = True
                    for each in known if mode == "all" else [pid]:
                        try:
                            os.kill(each, signal.SIGKILL)
                        except ProcessLookupError:
                            pass
                    continue
        libc.ptrace(CONT, pid, None, 0 if event != 0 else sig)
    log.write("killed\n" if is_done else f"ended {status}\n")
    sys.exit(0 if is_done else 1 if status is None or status < 0 else status)


main()
