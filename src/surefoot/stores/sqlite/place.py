"""Where a SQLite file may live. Refused at open: a place where its locks or its fsync do not hold."""

from __future__ import annotations

import os
import stat
import sys

from ...core.errors import StoreRefused

NETWORK_FILE_SYSTEMS = frozenset(
    (
        *("nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "gpfs"),
        *("beegfs", "ncpfs", "orangefs", "pvfs2", "ocfs2", "davfs", "fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse"),
        *("fuse.rclone", "fuse.glusterfs", "fuse.davfs", "fuse.ceph", "fuse.cephfs", "fuse.nfs"),
    )
)


def boot_name() -> str:
    """Names this boot of the machine; the lease clock counts from it."""
    try:
        return _read("/proc/sys/kernel/random/boot_id").strip()
    except OSError:
        return "unknown"


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def absolute(path: str | os.PathLike[str]) -> str:
    """The path from the root; what `..` leads to behind a link is left to the system."""
    whole = os.path.join(os.getcwd(), path)
    return whole if os.pardir in whole.split(os.sep) else os.path.normpath(whole)


def file_system_of(path: str, mountinfo: str, device: int) -> str:
    """The type of file system that `device` is, from the text of /proc/self/mountinfo; "" when not listed.

    With several mounts of one device the longest mount point above `path` counts.
    """
    wanted, best, found = f"{os.major(device)}:{os.minor(device)}", -1, ""
    for line in mountinfo.splitlines():
        left, dash, right = line.partition(" - ")
        fields = left.split()
        if not dash or len(fields) < 5 or fields[2] != wanted:
            continue
        point = fields[4].replace("\\040", " ")
        if f"{path}/".startswith(f"{point.rstrip('/')}/") and len(point) > best:
            best, found = len(point), right.split()[0]
    return found


def check_place(path: str) -> None:
    """Raises StoreRefused when `path` cannot hold a store, saying what was found and what to do."""
    try:
        _check_place(path)
    except PermissionError as error:
        raise StoreRefused(f"{path} is not writable by this user ({error}); change its owner or mode") from error


def _mode_of(path: str) -> int:
    """Its kind and rights; 0 where there is nothing."""
    try:
        return os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _check_place(path: str) -> None:
    folder, mode = os.path.dirname(path), _mode_of(path)
    if not stat.S_ISDIR(_mode_of(folder)):
        raise StoreRefused(f"{folder} is not a folder; create it, or give Surefoot a path in an existing one")
    if stat.S_ISDIR(mode):
        within = os.path.join(path, "agents.db")
        raise StoreRefused(f"{path} is a folder; give Surefoot the path of a file in it, such as {within}")
    if mode and not os.access(path, os.R_OK | os.W_OK):
        raise StoreRefused(f"{path} cannot be read and written by this user; change its owner or mode")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StoreRefused(f"{folder} is not writable by this user; SQLite keeps its log beside the file")
    if sys.platform == "linux":
        kind = file_system_of(os.path.realpath(path), _read("/proc/self/mountinfo"), os.stat(folder).st_dev)
        if kind in NETWORK_FILE_SYSTEMS:
            raise StoreRefused(
                f"{path} is on a network file system ({kind}), where SQLite's locks and fsync do not hold. "
                "Use a local disk, or PostgreSQL for several machines."
            )
