"""The seccomp filter: the system calls that computing, files, threads and timers need, and no other.

Everything else fails with EPERM: sockets, exec, mount, ptrace, bpf, keyctl, io_uring, namespaces ... Refused too is what
makes the kernel hold memory or disk for a program where no limit counts it. A filter is a program of classic BPF (kernel
documentation, ``userspace-api/seccomp_filter.rst``).
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Mapping, Sequence

from . import kernel

# Per line: name, number on x86_64, number on aarch64 (0: not there).
_TABLE = """
read 0 63  write 1 64  open 2 0  close 3 57  stat 4 0  fstat 5 80  lstat 6 0  poll 7 0  lseek 8 62  
mprotect 10 226  munmap 11 215  brk 12 214  rt_sigaction 13 134  rt_sigprocmask 14 135  rt_sigreturn 15 139
pread64 17 67  pwrite64 18 68  readv 19 65  writev 20 66  access 21 0  pipe 22 0  select 23 0  sched_yield 24 124
mremap 25 216  msync 26 227  mincore 27 232  madvise 28 233  dup 32 23  dup2 33 0  pause 34 0  nanosleep 35 101
getitimer 36 102  alarm 37 0  setitimer 38 103  getpid 39 172  recvfrom 45 207
recvmsg 47 212  shutdown 48 210  getsockname 51 204  getpeername 52 205
getsockopt 55 209  exit 60 93  wait4 61 260  uname 63 160  flock 73 32  fsync 74 82  fdatasync 75 83  
ftruncate 77 46  getdents 78 0  getcwd 79 17  chdir 80 49  fchdir 81 50  rename 82 0  mkdir 83 0  rmdir 84 0
creat 85 0  link 86 0  unlink 87 0  symlink 88 0  readlink 89 0  umask 95 166
gettimeofday 96 169  getrlimit 97 163  getrusage 98 165  sysinfo 99 179  times 100 153  getuid 102 174
getgid 104 176  geteuid 107 175  getegid 108 177  getppid 110 173  getpgrp 111 0  getgroups 115 158
getresuid 118 148  getresgid 120 150  getpgid 121 155  getsid 124 156  rt_sigpending 127 136  rt_sigtimedwait 128 137
rt_sigsuspend 130 133  sigaltstack 131 132  statfs 137 43  fstatfs 138 44  getpriority 140 141
sched_getparam 143 121  sched_getscheduler 145 120  sched_get_priority_max 146 125  sched_get_priority_min 147 126
arch_prctl 158 0  setrlimit 160 164  gettid 186 178  time 201 0  futex 202 98  sched_getaffinity 204 123
epoll_create 213 0  getdents64 217 61  set_tid_address 218 96  restart_syscall 219 128  fadvise64 221 223
timer_create 222 107  timer_settime 223 110  timer_gettime 224 108  timer_getoverrun 225 109  timer_delete 226 111
clock_gettime 228 113  clock_getres 229 114  clock_nanosleep 230 115  exit_group 231 94  epoll_wait 232 0
epoll_ctl 233 21  waitid 247 95  openat 257 56  mkdirat 258 34  newfstatat 262 79  unlinkat 263 35  renameat 264 38
linkat 265 37  symlinkat 266 36  readlinkat 267 78  faccessat 269 48  pselect6 270 72  ppoll 271 73
set_robust_list 273 99  get_robust_list 274 100  sync_file_range 277 84  epoll_pwait 281 22
timerfd_create 283 85  eventfd 284 0  timerfd_settime 286 86  timerfd_gettime 287 87
eventfd2 290 19  epoll_create1 291 20  dup3 292 24  pipe2 293 59  preadv 295 69  pwritev 296 70  getcpu 309 168
renameat2 316 276  getrandom 318 278  membarrier 324 283  copy_file_range 326 285  statx 332 291  rseq 334 293
openat2 437 437  faccessat2 439 439  epoll_pwait2 441 441
"""
_SPECIAL = {  # allowed for some arguments only
    "x86_64": {"mmap": 9, "ioctl": 16, "sendto": 44, "socketpair": 53, "clone": 56, "fork": 57, "vfork": 58, "kill": 62}
    | {"fcntl": 72, "prctl": 157, "tkill": 200, "tgkill": 234, "fallocate": 285, "prlimit64": 302}
    | {"clone3": 435, "close_range": 436},
    "aarch64": {"mmap": 222, "ioctl": 29, "sendto": 206, "socketpair": 199, "clone": 220, "kill": 129, "fcntl": 25}
    | {"prctl": 167, "tkill": 130, "tgkill": 131, "fallocate": 47, "prlimit64": 261}
    | {"clone3": 435, "close_range": 436},
}
_OWNED = {  # change what a file's owner may change, and no wall but a file system of its own is in the way
    "x86_64": {"chmod": 90, "fchmod": 91, "utime": 132, "fchmodat": 268, "utimensat": 280, "truncate": 76},
    "aarch64": {"fchmod": 52, "fchmodat": 53, "utimensat": 88, "truncate": 45},
}
_ATTRIBUTES = {"x86_64": range(188, 200), "aarch64": range(5, 17)}  # setxattr to fremovexattr: as if not supported
_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # isatty, window size, FIONREAD, FIONBIO, close on exec
_FCNTL = (0, 1, 2, 3, 4, 5, 1030, 1032)  # no F_SETOWN, F_SETSIG: signals to anybody; no F_SETPIPE_SZ: memory
_LOCKS, _DESCRIPTOR_LOCKS = (6, 7), (36, 37, 38)  # F_SETLK, F_SETLKW; the same of an open file: no limit counts them
_STREAM = (0x1, 0x801, 0x80001, 0x80801)  # SOCK_STREAM, which takes no address in sending; not blocking, close on exec
_PRCTL = (15, 16, 0x53564D41)  # names of threads and of mappings
_CLONE_FILES, _CLONE_THREAD, _CLONE_NAMESPACES = 0x00000400, 0x00010000, 0x7E020080
_MAP_SHARED, _MAP_ANONYMOUS, _MAP_HUGETLB = 0x01, 0x20, 0x40000
_LOAD, _EQUAL, _GREATER, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCH, _ARGUMENT = 0, 4, 16


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def supported() -> bool:
    """Whether there is a table for this machine."""
    return kernel.machine in _AUDIT


def install(*, forks: bool, own_world: bool, sockets: bool) -> None:
    """Confine the calling process, for ever, and all that it starts.

    Args:
        forks: whether it may make processes (threads it may always make).
        own_world: whether its file system and its processes are its own. Where they are not, it sends signals to itself
            only, and the mode and times of files stay as they are though it is told that they have changed.
        sockets: whether it may make connected pairs of sockets.

    Raises:
        OSError: the kernel takes no filter.
    """
    code = b"".join(_instructions(forks, own_world, sockets))
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    program = _Program(len(code) // 8, code)
    kernel.prctl(22, 2, ctypes.byref(program))  # type: ignore[arg-type]  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER


def _instructions(forks: bool, own_world: bool, sockets: bool) -> list[bytes]:
    special = _SPECIAL[kernel.machine]
    column = list(_AUDIT).index(kernel.machine)
    words = _TABLE.split()
    numbers = [int(words[i + 1 + column]) for i in range(0, len(words), 3)]
    plain = [number for number, name in zip(numbers, words[::3], strict=True) if number or name == "read"]
    code = [_op(_LOAD, _ARCH), _op(_EQUAL, _AUDIT[kernel.machine], 1, 0), _op(_RETURN, _KILL), _op(_LOAD, _NUMBER)]
    code += [_op(_GREATER, 0x40000000, 0, 1), _op(_RETURN, _KILL)]  # the x32 names of the same calls
    if forks:
        plain += [special[name] for name in ("fork", "vfork") if name in special]
    if own_world:
        plain += [special[name] for name in ("kill", "tkill", "tgkill")] + list(_OWNED[kernel.machine].values())
    for number in plain:
        code += [_op(_EQUAL, number, 0, 1), _op(_RETURN, _ALLOW)]
    code += [_op(_EQUAL, special["clone3"], 0, 1), _refuse(errno.ENOSYS)]  # the C library then uses clone
    own = (os.getpid(),)
    code += _mmap(special["mmap"]) + _clone(special["clone"], forks)
    code += _only(special["ioctl"], {1: _IOCTL}, errno.ENOTTY) + _fcntl(special["fcntl"], forks)
    code += _only(special["prctl"], {0: _PRCTL}) + _only(special["prlimit64"], {0: (0, *own)})
    code += _only(special["fallocate"], {1: (0,)}, errno.EOPNOTSUPP)  # the others pass the limit on the size of a file
    code += _only(special["close_range"], {2: (0, 4)}, errno.EINVAL)  # not with a table of files of its own
    for number in _ATTRIBUTES[kernel.machine]:
        code += [_op(_EQUAL, number, 0, 1), _refuse(errno.EOPNOTSUPP)]
    if sockets:
        code += _only(special["socketpair"], {0: (1,), 1: _STREAM})
        code += _only(special["sendto"], {4: (0,), 4.5: (0,)})
    if not own_world:
        for name, number in _OWNED[kernel.machine].items():
            code += [_op(_EQUAL, number, 0, 1), _refuse(errno.EPERM if name == "truncate" else 0)]
        code += _only(special["kill"], {0: own}) + _only(special["tgkill"], {0: own})
    return [*code, _refuse(errno.EPERM)]


def _only(number: int, wanted: Mapping[float, Sequence[int]], otherwise: int = errno.EPERM) -> list[bytes]:
    """Allow a call whose arguments are each one of some values, by their lower 32 bits: these calls take ints.

    The upper half of argument n is called n + 0.5.
    """
    body = []
    for argument, values in wanted.items():
        body.append(_op(_LOAD, _ARGUMENT + int(8 * argument)))
        body += [_op(_EQUAL, value, len(values) - n, 0) for n, value in enumerate(values)]
        body.append(_refuse(otherwise))
    return _case(number, [*body, _op(_RETURN, _ALLOW)])


def _fcntl(number: int, forks: bool) -> list[bytes]:
    """Locks are for other processes: where there are none a lock is told to be had, and takes no memory."""
    if forks:
        return _only(number, {1: (*_FCNTL, *_LOCKS, *_DESCRIPTOR_LOCKS)})
    body = [_op(_LOAD, _ARGUMENT + 8)]
    for values, answer in (
        (_LOCKS, _refuse(0)),
        (_FCNTL, _op(_RETURN, _ALLOW)),
        (_DESCRIPTOR_LOCKS, _refuse(errno.EINVAL)),
    ):
        for value in values:
            body += [_op(_EQUAL, value, 0, 1), answer]
    return _case(number, [*body, _refuse(errno.EPERM)])


def _mmap(number: int) -> list[bytes]:
    """No shared memory without a file: it stays after all but a page of it is unmapped, where no limit counts it."""
    body = [_op(_LOAD, _ARGUMENT + 24), _op(_ANY_BIT, _MAP_HUGETLB, 2, 0), _op(_ANY_BIT, _MAP_ANONYMOUS, 0, 2)]
    body += [_op(_ANY_BIT, _MAP_SHARED, 0, 1), _refuse(errno.EPERM), _op(_RETURN, _ALLOW)]
    return _case(number, body)


def _clone(number: int, forks: bool) -> list[bytes]:
    """A thread shares its table of open files with the others, for the limit on open files is one of the table."""
    body = [_op(_LOAD, _ARGUMENT), _op(_ANY_BIT, _CLONE_NAMESPACES & ~0xFF, 4, 0)]
    body += [_op(_ANY_BIT, _CLONE_THREAD, 1, 0), _op(_RETURN, _ALLOW if forks else _ERRNO | errno.EPERM)]
    body += [_op(_ANY_BIT, _CLONE_FILES, 0, 1), _op(_RETURN, _ALLOW), _refuse(errno.EPERM)]
    return _case(number, body)


def _case(number: int, body: list[bytes]) -> list[bytes]:
    return [_op(_EQUAL, number, 0, len(body)), *body]


def _refuse(number: int) -> bytes:
    return _op(_RETURN, _ERRNO | number)


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
