"""Files of a container, through its own shell: rights and links are those of the user inside."""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Sequence

from opensage.errors import PathRefused

MOST = 256 << 20
"""Bytes read at once."""
REFUSED, MISSING, FOLDER, DENIED, SPECIAL, SHORT, NO_FOLDER, LOOP = range(41, 49)
CODES = {
    MISSING: errno.ENOENT,
    FOLDER: errno.EISDIR,
    DENIED: errno.EACCES,
    SHORT: errno.ENOSPC,
    NO_FOLDER: errno.ENOTDIR,
    LOOP: errno.ELOOP,
}
LONGEST_NAME = 255

# $path is what was asked for, $root the folder that it is in as written and must be in as it resolves.
_COMMON = f"""
path=$1 root=$(readlink -f -- "$2") || exit {REFUSED}
refuse_outside() {{
    case "$1/" in
        */.opensage/*) exit {REFUSED} ;;
        "$root"/*) return ;;
    esac
    exit {REFUSED}
}}
"""
READ = f"""{_COMMON}
if ! real=$(readlink -f -- "$path") || [ -z "$real" ]; then
    refuse_outside "$path"
    [ -L "$path" ] && exit {LOOP}
    exit {MISSING}
fi
refuse_outside "$real"
[ -e "$real" ] || exit {MISSING}
[ -d "$real" ] && exit {FOLDER}
[ -f "$real" ] || exit {SPECIAL}
[ -r "$real" ] || exit {DENIED}
tail -c +"$3" -- "$real" | head -c "$4"
"""
# Folders are made below the deepest one there is, which must be inside; a last link is followed only when asked.
_PLACE = f"""{_COMMON}
above=$(dirname -- "$path")
while [ ! -e "$above" ]; do
    [ -L "$above" ] && exit {REFUSED}
    above=$(dirname -- "$above")
done
above=$(readlink -f -- "$above")
refuse_outside "$above"
[ -e "$above" ] && [ ! -d "$above" ] && exit {NO_FOLDER}
if ! mkdir -p -- "$(dirname -- "$path")" 2> /dev/null; then
    [ -e "$above" ] && [ ! -w "$above" ] && exit {DENIED}
    exit {REFUSED}
fi
"""
WRITE = f"""{_PLACE}
[ -L "$path" ] && [ ! -e "$path" ] && exit {MISSING}
if [ -L "$path" ]; then path=$(readlink -f -- "$path") && [ -n "$path" ] || exit {REFUSED}; fi
folder=$(readlink -f -- "$(dirname -- "$path")") && path=$folder/$(basename -- "$path")
refuse_outside "$path"
[ -d "$path" ] && exit {FOLDER}
[ -e "$path" ] && [ ! -f "$path" ] && exit {SPECIAL}
half=$folder/.$3.tmp
trap 'rm -f -- "$half"' EXIT
(cat > "$half") 2> /dev/null || {{ [ -w "$folder" ] && exit {SHORT}; exit {DENIED}; }}
[ "$(($(wc -c < "$half")))" = "$4" ] || exit {SHORT}
if [ -f "$path" ]; then
    [ -w "$path" ] || exit {DENIED}
    chmod "$(stat -c %a -- "$path")" "$half"
fi
mv -f -- "$half" "$path"
"""
PUT = f"""{_PLACE}
folder=$(readlink -f -- "$(dirname -- "$path")")
refuse_outside "$folder/$(basename -- "$path")"
cd -- "$folder" && tar -xpf - 2> /dev/null || exit {DENIED}
"""
GET = f"""{_COMMON}
folder=$(readlink -f -- "$(dirname -- "$path")") || exit {MISSING}
refuse_outside "$folder/$(basename -- "$path")"
cd -- "$folder" || exit {DENIED}
name=./$(basename -- "$path")
[ -e "$name" ] || [ -L "$name" ] || exit {MISSING}
tar -cf - --exclude "$name/.opensage" -- "$name"
"""


def place(path: str, workdir: str) -> str:
    """An absolute path inside, without `..`.

    Raises:
        PathRefused: empty, with NUL, or out of the workspace by `..`.
        OSError: a name in it is too long for any file system.
    """
    if not path or "\0" in path:
        raise PathRefused("a path must not be empty or contain NUL")
    if any(len(os.fsencode(part)) > LONGEST_NAME for part in path.split("/")):
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path[:80])
    full = posixpath.normpath(posixpath.join(workdir, path))
    if not path.startswith("/") and full != workdir and not full.startswith(f"{workdir}/"):
        raise PathRefused(f"{path} leads out of the workspace: use a path inside it")
    return full


def argv(script: str, path: str, roots: Sequence[str], *more: object) -> list[str]:
    """The command for one of the scripts above; `path` is absolute.

    Raises:
        PathRefused: it is in none of the folders that may be read from and written to.
    """
    holding = [root for root in roots if path == root or path.startswith(f"{root}/")]
    if not holding:
        raise PathRefused(f"{path} is outside the workspace: use a path inside it")
    return ["/bin/sh", "-c", script, "sh", path, max(holding, key=len), *map(str, more)]


def check(code: int | None, path: str, said: str) -> None:
    """Raise what the exit code of a script stands for."""
    if code == 0:
        return
    if code == REFUSED:
        raise PathRefused(f"{path} is outside the workspace, or leads out of it: use a path inside it")
    if code == SPECIAL:
        raise PathRefused(f"{path} is not a regular file")
    number = CODES.get(code or 0)
    if number is None:
        raise OSError(errno.EIO, said.strip()[:300] or f"exit code {code}", path)
    raise OSError(number, os.strerror(number), path)
