"""What the kernel says about sockets: whether a reply has been read, and whom a process is connected to."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

AF_NETLINK = 16
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST = 4, 20, 1
TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


def _lines() -> Iterator[list[str]]:
    for table in TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            yield line.split()


class ReadWatch:
    """Whether the other end of one loopback connection has taken everything that was sent to it.

    The kernel is asked for this one socket; the tables in /proc, which grow with the machine's other connections, are
    read only where that is refused. Where neither exists the answer is yes: the kill comes a moment too early then.
    """

    def __init__(self, peer_port: int, own_port: int) -> None:
        """`peer_port` is the other end's."""
        self._peer, self._own = peer_port, own_port
        loopback = socket.inet_aton("127.0.0.1") + bytes(12)
        ends = struct.pack("!HH", peer_port, own_port) + loopback + loopback + bytes(4) + b"\xff" * 8
        request = struct.pack("=BBBxI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + ends
        self._message = struct.pack("=IHHII", 16 + len(request), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, 0) + request
        self._netlink: socket.socket | None = None
        try:
            self._netlink = socket.socket(AF_NETLINK, socket.SOCK_DGRAM, NETLINK_SOCK_DIAG)
            self._netlink.settimeout(1.0)
        except OSError:
            pass

    def inode(self) -> str:
        """The kernel's number of the other end, as /proc calls it; "" when it is gone."""
        mine, theirs = f":{self._peer:04X}", f":{self._own:04X}"
        for fields in _lines():
            if fields[1].endswith(mine) and fields[2].endswith(theirs):
                return fields[9]
        return ""

    def has_read(self) -> bool:
        """All of it was read, or the other end is gone."""
        if self._netlink is not None:
            try:
                self._netlink.send(self._message)
                answer = self._netlink.recv(8192)
                kind = struct.unpack_from("=H", answer, 4)[0]
                if kind == SOCK_DIAG_BY_FAMILY:
                    return struct.unpack_from("=I", answer, 16 + 4 + 48 + 4)[0] == 0
                if struct.unpack_from("=i", answer, 16)[0] == -errno.ENOENT:
                    return True
            except OSError:
                pass
            self.close()
        return self._by_table()

    def _by_table(self) -> bool:
        mine, theirs = f":{self._peer:04X}", f":{self._own:04X}"
        for fields in _lines():
            if fields[1].endswith(mine) and fields[2].endswith(theirs):
                return fields[4].partition(":")[2] == "00000000"
        return True

    def close(self) -> None:
        """Ask no more."""
        if self._netlink is not None:
            self._netlink.close()
            self._netlink = None


def _inodes_of(pid: int) -> Iterator[str]:
    """The sockets that a process holds."""
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return
    for name in names:
        try:
            link = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        if link.startswith("socket:["):
            yield link[8:-1]


def holders(pids: Iterable[int], inode: str) -> set[int]:
    """Those of these processes that hold this socket."""
    return {pid for pid in pids if inode and inode in _inodes_of(pid)}


def foreign_peers(pids: Iterable[int]) -> set[str]:
    """Addresses outside of this machine that these processes are connected to now, as HOST:PORT."""
    inodes = {inode for pid in pids for inode in _inodes_of(pid)}
    found = {_address(fields[2]) for fields in _lines() if inodes and fields[9] in inodes and fields[3] != "0A"}
    return {address for address in found if address}


def _address(text: str) -> str:
    host, _, port = text.partition(":")
    raw = bytes.fromhex(host)
    if len(raw) == 16:
        words = b"".join(raw[i : i + 4][::-1] for i in range(0, 16, 4))
        if words[:12] == b"\0" * 10 + b"\xff\xff":
            raw = words[12:][::-1]
        else:
            return "" if words in (b"\0" * 16, b"\0" * 15 + b"\x01") else f"[{words.hex(':', 2)}]:{int(port, 16)}"
    first, rest = raw[::-1][0], ".".join(str(part) for part in raw[::-1])
    return "" if first in (0, 127) else f"{rest}:{int(port, 16)}"
