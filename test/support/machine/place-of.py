# Lets the files that a process sees be seen below a directory too: of process PID, at DIRECTORY. systemd takes that as the root of a unit.
import ctypes
import os
import sys

OPEN_TREE, MOVE_MOUNT, AT_FDCWD = 428, 429, -100
CLONE, CLOEXEC, RECURSIVE, EMPTY_PATH = 1, 0o2000000, 0x8000, 0x4
CLONE_NEWNS = 0x20000
REC, PRIVATE, DETACH = 0x4000, 1 << 18, 2
libc = ctypes.CDLL(None, use_errno=True)


def checked(result):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


pid, at = sys.argv[1:]
own = os.open("/proc/self/ns/mnt", os.O_RDONLY)
checked(libc.setns(os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY), CLONE_NEWNS))
# A copy without what no program looks at: systemd looks at each mount that there is. In a user namespace nothing can be taken away.
isLess = os.readlink(f"/proc/{pid}/ns/user") == os.readlink("/proc/self/ns/user")
if isLess:
    checked(libc.unshare(CLONE_NEWNS))
    checked(libc.mount(b"none", b"/", None, REC | PRIVATE, None))
while isLess:
    isLess = False
    with open("/proc/self/mountinfo") as mounts:
        paths = [line.split()[4] for line in mounts]
    # One may lie on another of the same path.
    for path in reversed(paths):
        if path.startswith(("/run/netns", "/run/holdfast-places", "/sys/kernel/")):
            isLess = libc.umount2(path.encode(), DETACH) == 0 or isLess
tree = checked(libc.syscall(OPEN_TREE, AT_FDCWD, b"/", CLONE | CLOEXEC | RECURSIVE))
checked(libc.setns(own, CLONE_NEWNS))
os.makedirs(at)
checked(libc.syscall(MOVE_MOUNT, tree, b"", AT_FDCWD, at.encode(), EMPTY_PATH))
