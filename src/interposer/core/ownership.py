"""Whether a file can be trusted: it belongs to this user or to root, and nobody else can change or replace it."""

from __future__ import annotations

import os
import stat
from typing import Final

__all__ = ["why_untrusted", "why_untrusted_file"]

_OTHERS: Final = stat.S_IWOTH
_GROUP: Final = stat.S_IWGRP


def why_untrusted(path: str | os.PathLike[str]) -> str:
    """Return why another user could have written a file or a folder, or could replace it; an empty text if none could.

    The file and all folders above it must belong to this user or to root, and must not be writable by others. In a
    folder with the sticky bit, such as ``/tmp``, others cannot replace files. A group with this user as its only member
    may have write access. Links are followed. On a system without users, and for an absent file, the text is empty.
    """
    if not hasattr(os, "geteuid"):
        return ""
    try:
        place = os.path.realpath(path)
        problem = _problem(place, os.stat(place), is_last=True)
    except (OSError, ValueError):
        return ""
    while not problem and place != os.path.dirname(place):
        place = os.path.dirname(place)
        problem = _problem(place, os.stat(place), is_last=False)
    return problem


def why_untrusted_file(descriptor: int, folder: str | os.PathLike[str]) -> str:
    """Return why another user could have written an open file; an empty text if none could.

    Only the file and its `folder` are checked, and not the folders above.
    """
    if not hasattr(os, "geteuid"):
        return ""
    problem = _problem("the file", os.fstat(descriptor), is_last=True)
    return problem or _problem(os.fspath(folder), os.stat(folder), is_last=False)


def _problem(place: str, status: os.stat_result, *, is_last: bool) -> str:
    if status.st_uid not in (0, os.geteuid()):
        return f"{place} belongs to {_user(status.st_uid)}"
    if not is_last and status.st_mode & stat.S_ISVTX:
        return ""
    if status.st_mode & _OTHERS:
        return f"{place} can be written by all users (chmod o-w)"
    if status.st_mode & _GROUP and not _is_own_group(status.st_gid):
        return f"{place} can be written by {_group(status.st_gid)} (chmod g-w)"
    return ""


def _user(number: int) -> str:
    try:
        import pwd  # noqa: PLC0415 - not on every system

        return f"the user {pwd.getpwuid(number).pw_name}"
    except (ImportError, KeyError):
        return f"the user {number}"


def _group(number: int) -> str:
    try:
        import grp  # noqa: PLC0415 - not on every system

        return f"the group {grp.getgrgid(number).gr_name}"
    except (ImportError, KeyError):
        return f"the group {number}"


def _is_own_group(number: int) -> bool:
    """Return True if this user, or root, is the only member of a group, as on systems with a group for each user."""
    import grp  # noqa: PLC0415 - not on every system
    import pwd  # noqa: PLC0415

    try:
        user_entry, members = pwd.getpwuid(os.geteuid()), grp.getgrgid(number).gr_mem
    except KeyError:
        return False
    is_primary = number in (0, user_entry.pw_gid)
    return (
        is_primary and set(members) <= {user_entry.pw_name, "root"} and _is_named_like_user(number, user_entry.pw_name)
    )


def _is_named_like_user(number: int, user: str) -> bool:
    """Return True if a group is not one that other users may have as their primary group, such as ``users``."""
    import grp  # noqa: PLC0415 - not on every system

    return grp.getgrgid(number).gr_name in (user, "root")
