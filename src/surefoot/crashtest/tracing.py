"""Stops an agent at an exact system call: the read that takes the end of a reply, or its own exit.

A kill that watches from outside races an agent that ends with its last reply. So where the kernel allows it (Linux's
ptrace(2)), the agent's threads stand still at each system call from before the reply is sent, and the kill lands there,
however loaded the machine is. Elsewhere nothing here says yes, and who asks falls back on watching.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

SEIZE, INTERRUPT, LISTEN, RESUME, SYSCALL_INFO = 0x4206, 0x4207, 0x4208, 24, 0x420E
OPTIONS = 0x01 | 0x08  # system calls are marked as such; threads that are started are seized with their starter
EVENT_STOP, ENTRY = 128, 1
THIS_THREADS_ALL_KINDS = 0x20000000 | 0x40000000  # __WNOTHREAD | __WALL
EXIT_GROUP = {"x86_64": 231, "aarch64": 94, "riscv64": 94, "loongarch64": 94}
STOPPING = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
INFO = struct.Struct("=B3xIQQQ")
SYSTEM_CALL = signal.SIGTRAP | 0x80
ROUNDS_MAX = 20


class Tracer:
    """The threads of some processes, each stopped at every system call. All by the one thread that made it.

    They go on when that thread ends; a SIGKILL reaches them as it reaches any other process.
    """

    def __init__(self, pids: Iterable[int]) -> None:
        """Seizes every thread of these processes; `is_exact` says whether that worked for all."""
        self._call = _ptrace()
        self._threads: set[int] = set()
        self.is_exact = self._call is not None and platform.machine() in EXIT_GROUP and self._seize(list(pids))

    def _seize(self, pids: list[int]) -> bool:
        """Also those that are started meanwhile, so until there is no new one."""
        for _ in range(ROUNDS_MAX):
            found = {thread for pid in pids for thread in _threads_of(pid)} - self._threads
            if not found:
                break
            for thread in found:
                if self._ask(SEIZE, thread, 0, OPTIONS) and self._ask(INTERRUPT, thread):
                    self._threads.add(thread)
                elif thread in _threads_of(thread):
                    return False  # it lives and cannot be seized: not ours, or somebody else traces it
        return bool(self._threads)

    def _ask(self, what: int, thread: int, address: int = 0, content: Any = 0) -> bool:
        assert self._call is not None
        return self._call(what, thread, address, content) >= 0

    def run(self, here: Callable[[int, bool, int], bool], goes_on: Callable[[], bool]) -> bool:
        """Let them run from stop to stop until `here(thread, is_entry, number)`; that thread stands then.

        `number` is the system call's where one is entered, else 0: one is left, or the thread was interrupted, perhaps
        on its way out of one. False once `goes_on` says no.
        """
        while goes_on():
            try:
                stopped = os.waitid(os.P_ALL, 0, os.WSTOPPED | os.WNOHANG | THIS_THREADS_ALL_KINDS)
            except ChildProcessError:
                return False  # all of them are gone
            if stopped is None:
                time.sleep(0.0001)
                continue
            thread, status = stopped.si_pid, stopped.si_status
            kind, number = self._system_call(thread) if status == SYSTEM_CALL else (0, 0)
            if here(thread, kind == ENTRY, number):
                return True
            if status >> 8 == EVENT_STOP and status & 0x7F in STOPPING:
                self._ask(LISTEN, thread)  # it was stopped by a signal, and stays so until it is continued
            else:  # a signal on its way goes on its way
                self._ask(RESUME, thread, 0, 0 if status >> 8 or status == SYSTEM_CALL else status)
        return False

    def _system_call(self, thread: int) -> tuple[int, int]:
        held = ctypes.create_string_buffer(128)
        if not self._ask(SYSCALL_INFO, thread, len(held), ctypes.addressof(held)):
            return 0, 0
        kind, _, _, _, number = INFO.unpack_from(held.raw)
        return kind, number if kind == ENTRY else 0


def exits(number: int) -> bool:
    """Whether this system call ends a whole process."""
    return number == EXIT_GROUP.get(platform.machine(), -1)


def process_of(thread: int) -> int:
    """The process that a thread belongs to; 0 when it is gone."""
    try:
        lines = (Path("/proc") / str(thread) / "status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Tgid:")), 0)


def _threads_of(pid: int) -> set[int]:
    try:
        return {int(name) for name in os.listdir(f"/proc/{pid}/task")}
    except OSError:
        return set()


def _ptrace() -> Callable[..., int] | None:
    if sys.platform != "linux":
        return None
    call: Any = ctypes.CDLL(None, use_errno=True).ptrace
    call.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    call.restype = ctypes.c_long
    return call
