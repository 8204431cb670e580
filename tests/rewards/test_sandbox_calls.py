"""System calls: what programs do not need is refused, with any arguments or with some."""

from __future__ import annotations

import os

from surefoot.rewards.sandbox import Ending, Sandbox
from tests.rewards.sandboxes import at_each_level

CALLS = {  # x86_64: number, arguments; each would be of use to somebody who wants out, or to hold what no limit counts
    # the machine
    "mount": (165, "b'none', b'/tmp', b'tmpfs', 0, None"),
    "umount2": (166, "b'/tmp', 2"),
    "unshare": (272, "0x10000000"),
    "unshare of the table of files": (272, "0x400"),
    "setns": (308, "0, 0"),
    "clone into a user namespace": (56, "0x10000011, 0, 0, 0, 0"),
    "bpf": (321, "0, 0, 0"),
    "io_uring_setup": (425, "8, 0"),
    "io_setup": (206, "8, ctypes.byref(ctypes.c_long())"),
    "perf_event_open": (298, "0, 0, -1, -1, 0"),
    "userfaultfd": (323, "0"),
    "chroot": (161, "b'/tmp'"),
    "pivot_root": (155, "b'/tmp', b'/tmp'"),
    "fsopen": (430, "b'tmpfs', 0"),
    "open_tree": (428, "-100, b'/', 1"),
    "open_by_handle_at": (304, "-100, 0, 0"),
    "setuid": (105, "0"),
    "init_module": (175, "0, 0, b''"),
    "reboot": (169, "0, 0, 0, 0"),
    "syslog": (103, "3, 0, 0"),
    "execve": (59, "b'/bin/true', 0, 0"),
    "execveat": (322, "-100, b'/bin/true', 0, 0, 0"),
    "personality": (135, "0x40000"),
    "seccomp": (317, "0, 0, 0"),
    "prctl(PR_SET_DUMPABLE)": (157, "4, 1, 0, 0, 0"),
    "fanotify_init": (300, "0, 0"),
    "inotify_init1": (294, "0"),
    # other processes
    "ptrace": (101, "16, 1, 0, 0"),
    "process_vm_readv": (310, "1, 0, 0, 0, 0, 0"),
    "process_vm_writev": (311, "1, 0, 0, 0, 0, 0"),
    "pidfd_open": (434, "1, 0"),
    "pidfd_getfd": (438, "0, 0, 0"),
    "pidfd_send_signal": (424, "0, 0, 0, 0"),
    "kcmp": (312, "1, 1, 0, 0, 0"),
    "rt_sigqueueinfo": (129, "1, 9, 0"),
    "fcntl(F_SETOWN)": (72, "1, 8, 1"),
    "setsid": (112, ""),
    "setpgid": (109, "0, 0"),
    "sched_setaffinity": (203, "0, 8, ctypes.byref(ctypes.c_long(1))"),
    "sched_setscheduler": (144, "0, 1, ctypes.byref(ctypes.c_int(1))"),
    "setpriority": (141, "0, 0, 5"),
    # sockets
    "socket": (41, "2, 1, 0"),
    "socket(AF_UNIX)": (41, "1, 2, 0"),
    "socket(AF_VSOCK)": (41, "40, 1, 0"),
    "socketpair of datagrams": (53, "1, 2, 0, (ctypes.c_int * 2)()"),
    "socketpair of datagrams, not blocking": (53, "1, 2 | 0x800, 0, (ctypes.c_int * 2)()"),
    "socketpair of raw datagrams": (53, "1, 3, 0, (ctypes.c_int * 2)()"),
    "socketpair of packets": (53, "1, 5, 0, (ctypes.c_int * 2)()"),
    "socketpair of TIPC": (53, "30, 1, 0, (ctypes.c_int * 2)()"),
    "sendto with an address": (44, "0, b'x', 1, 0, ctypes.create_string_buffer(b'\\1\\0/x'), 4"),
    "sendmsg": (46, "0, 0, 0"),
    "sendmmsg": (307, "0, 0, 0, 0"),
    "connect": (42, "0, 0, 0"),
    "bind": (49, "0, 0, 0"),
    "listen": (50, "0, 9"),
    "setsockopt(SO_SNDBUF)": (54, "0, 1, 7, ctypes.byref(ctypes.c_int(1 << 30)), 4"),
    "setsockopt(SO_RCVBUFFORCE)": (54, "0, 1, 33, ctypes.byref(ctypes.c_int(1 << 30)), 4"),
    # memory, descriptors and disk that no limit counts
    "memfd_create": (319, "b'x', 0"),
    "memfd_secret": (447, "0"),
    "shmget": (29, "0, 4096, 0o1600"),
    "semget": (64, "0, 9, 0o1600"),
    "msgget": (68, "0, 0o1600"),
    "mq_open": (240, "b'x', 0o102, 0o600, 0"),
    "keyctl": (250, "0, 0, 0, 0, 0"),
    "add_key": (248, "b'user', b'x', b'y', 1, -2"),
    "mknod of a FIFO": (133, "b'fifo', 0o10600, 0"),
    "mknodat of a FIFO": (259, "-100, b'fifo', 0o10600, 0"),
    "fcntl(F_SETPIPE_SZ)": (72, "1, 1031, 1 << 20"),
    "fcntl(F_SETLEASE)": (72, "1, 1024, 0"),
    "fcntl(F_NOTIFY)": (72, "1, 1026, 1"),
    "splice": (275, "0, 0, 1, 0, 1, 0"),
    "tee": (276, "0, 1, 1, 0"),
    "vmsplice": (278, "1, 0, 0, 0"),
    "sendfile": (40, "1, 0, 0, 1"),
    "mlock": (149, "0, 4096"),
    "remap_file_pages": (216, "0, 4096, 0, 0, 0"),
    "mmap, shared, without a file": (9, "0, 4096, 3, 0x21, -1, 0"),
    "mmap, shared and checked, without a file": (9, "0, 4096, 3, 0x23, -1, 0"),
    "mmap of huge pages": (9, "0, 2 << 20, 3, 0x40022, -1, 0"),
    "clone of a thread with files of its own": (56, "0x10900, ctypes.create_string_buffer(4096), 0, 0, 0"),
    "clone of a process that shares all": (56, "0x00000b00, ctypes.create_string_buffer(4096), 0, 0, 0"),
}
OTHERWISE = {  # refused with an error that makes the C library or the program go another way
    "clone3": (435, "0, 0", 38),  # ENOSYS
    "close_range with files of its own": (436, "90, 99, 2", 22),  # EINVAL
    "fallocate past the end": (285, "1, 1, 0, 1 << 30", 95),  # EOPNOTSUPP
    "setxattr": (188, "b'.', b'user.x', b'y', 1, 0", 95),  # shutil.copy2 expects it
    "listxattr": (194, "b'.', 0, 0", 95),
    "a lock of an open file": (72, "1, 37, 0", 22),  # EINVAL
}
AARCH64 = {"unshare": (97, "0x10000000"), "sendmsg": (211, "0, 0, 0"), "memfd_create": (279, "b'x', 0")}


def tried(calls: dict[str, tuple[int, str]]) -> str:
    """A program that makes each call and prints what it got."""
    head = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\ndef try_(name, *words):\n"
    head += "    print(name, libc.syscall(*words), ctypes.get_errno(), sep=':')\n"
    return head + "\n".join(f"try_({name!r}, {number}, {words})" for name, (number, words) in calls.items())


@at_each_level
def test_the_kernel_refuses_what_programs_do_not_need(sandbox: Sandbox) -> None:
    calls, otherwise = (CALLS, OTHERWISE) if os.uname().machine == "x86_64" else (AARCH64, {})
    result = sandbox.run(tried({**calls, **{name: call[:2] for name, call in otherwise.items()}}))
    assert result.ok, result
    expected = [f"{name}:-1:1" for name in calls]  # EPERM
    assert result.stdout.splitlines() == expected + [f"{name}:-1:{call[2]}" for name, call in otherwise.items()]


@at_each_level
def test_calls_of_the_other_machine_word_end_the_program(sandbox: Sandbox) -> None:
    """The x32 numbers of system calls would pass a filter that looks at the number alone."""
    result = sandbox.run("import ctypes\nctypes.CDLL(None).syscall(0x40000000 + 39)\nprint('on')")
    assert result.status is Ending.FAILED and result.stdout == ""
