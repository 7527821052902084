"""Who is at the other end of a loopback connection: on Linux, the process that holds the socket, read from /proc.

An agent that is started again is another process, so it begins to count its calls from the first; that is all that is
asked of this. Where it cannot be told (another user's process, another network namespace, another system), the answer
is "", and whoever needs it has to be told by a header or a path.
"""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

PROC = Path("/proc")
ESTABLISHED = "01"


class Peers:
    """Finds processes by their end of a connection; remembers which process a socket was seen at."""

    def __init__(self, proc: Path = PROC) -> None:
        """`proc` is where the system shows its processes."""
        self._proc, self._known = proc, dict[str, int]()

    def process_at(self, client: tuple[str, int], server_port: int) -> str:
        """`PID.START` of the process that holds the client's end, or ""; START tells a reused number apart."""
        inode = self._inode(client, server_port)
        if not inode:
            return ""
        name = f"socket:[{inode}]"
        pid = self._known.get(name, 0)
        if not pid or not self._holds(pid, name):
            holders = [each for each in self._processes() if self._holds(each, name)]
            # a child that inherited the socket is younger than whoever opened it
            pid = min(holders, key=lambda each: (int(self._started(each) or 0), each), default=0)
            if len(self._known) > 4096:
                self._known.clear()
            self._known[name] = pid
        started = self._started(pid) if pid else ""
        return f"{pid}.{started}" if started else ""

    def _inode(self, client: tuple[str, int], server_port: int) -> str:
        ends = {f"{address}:{client[1]:04X}" for address in _hexadecimal(client[0])}
        for table in ("net/tcp", "net/tcp6"):
            try:
                lines = (self._proc / table).read_text("ascii").splitlines()[1:]
            except OSError:
                continue
            for line in lines:
                fields = line.split()
                if fields[1] in ends and fields[3] == ESTABLISHED and fields[2].endswith(f":{server_port:04X}"):
                    return fields[9]
        return ""

    def _processes(self) -> list[int]:
        try:
            return [int(name) for name in os.listdir(self._proc) if name.isdigit()]
        except OSError:
            return []

    def _holds(self, pid: int, name: str) -> bool:
        folder = self._proc / str(pid) / "fd"
        try:
            return any(os.readlink(folder / descriptor) == name for descriptor in os.listdir(folder))
        except OSError:
            return False

    def _started(self, pid: int) -> str:
        try:
            # the name in brackets may hold blanks; field 22 is the start in ticks since boot
            return (self._proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[19]
        except (OSError, IndexError):
            return ""


def _hexadecimal(host: str) -> list[str]:
    """An address as the kernel's tables print it, in both families."""
    try:
        four = struct.unpack("=I", socket.inet_aton(host))[0]
        return [f"{four:08X}", f"0000000000000000FFFF0000{four:08X}"]
    except OSError:
        pass
    try:
        return ["".join(f"{word:08X}" for word in struct.unpack("=4I", socket.inet_pton(socket.AF_INET6, host)))]
    except OSError:
        return []
