"""Where a SQLite file may live. Refused at open: a place where its locks or its fsync do not hold."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ...core.errors import StoreRefused

NETWORK_FILE_SYSTEMS = frozenset(
    (
        *("nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "gpfs"),
        *("beegfs", "ncpfs", "orangefs", "pvfs2", "ocfs2", "davfs", "fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse"),
        *("fuse.rclone", "fuse.glusterfs", "fuse.davfs", "fuse.ceph", "fuse.cephfs", "fuse.nfs"),
    )
)


def file_system_of(path: Path, mountinfo: str, device: int) -> str:
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
        if path.is_relative_to(point) and len(point) > best:
            best, found = len(point), right.split()[0]
    return found


def check_place(path: Path) -> None:
    """Raises StoreRefused when `path` cannot hold a store, saying what was found and what to do."""
    try:
        _check_place(path)
    except PermissionError as error:
        raise StoreRefused(f"{path} is not writable by this user ({error}); change its owner or mode") from error


def _check_place(path: Path) -> None:
    folder = path.parent
    if not folder.is_dir():
        raise StoreRefused(f"{folder} is not a folder; create it, or give Surefoot a path in an existing one")
    if path.is_dir():
        raise StoreRefused(f"{path} is a folder; give Surefoot the path of a file in it, such as {path / 'agents.db'}")
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        raise StoreRefused(f"{path} cannot be read and written by this user; change its owner or mode")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StoreRefused(f"{folder} is not writable by this user; SQLite keeps its log beside the file")
    if sys.platform == "linux":
        mountinfo = Path("/proc/self/mountinfo").read_text()
        kind = file_system_of(path.resolve(), mountinfo, folder.stat().st_dev)
        if kind in NETWORK_FILE_SYSTEMS:
            raise StoreRefused(
                f"{path} is on a network file system ({kind}), where SQLite's locks and fsync do not hold. "
                "Use a local disk, or PostgreSQL for several machines."
            )
