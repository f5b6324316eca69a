"""Files of a container, through its own shell: rights and links are those of the user inside."""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Sequence

from opensage.errors import PathRefused

MOST = 256 << 20
"""Bytes read at once."""
REFUSED, MISSING, FOLDER, DENIED, SPECIAL, SHORT = 41, 42, 43, 44, 45, 46
CODES = {MISSING: errno.ENOENT, FOLDER: errno.EISDIR, DENIED: errno.EACCES, SHORT: errno.ENOSPC}

# $path is what was asked for, $roots the allowed folders, one a line. `refuse_outside` looks at a real path.
_COMMON = f"""
path=$1 roots=$2
refuse_outside() {{
    case "$1/" in */.opensage/*) exit {REFUSED} ;; esac
    while IFS= read -r root; do
        allowed=$(readlink -f -- "$root") || continue
        case "$1/" in "$allowed"/*) return ;; esac
    done <<END
$roots
END
    exit {REFUSED}
}}
"""
READ = f"""{_COMMON}
real=$(readlink -f -- "$path") && [ -n "$real" ] || {{ refuse_outside "$path"; exit {MISSING}; }}
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
while [ ! -e "$above" ]; do above=$(dirname -- "$above"); done
refuse_outside "$(readlink -f -- "$above")"
mkdir -p -- "$(dirname -- "$path")" 2> /dev/null || exit {DENIED}
"""
WRITE = f"""{_PLACE}
if [ -L "$path" ]; then path=$(readlink -f -- "$path") && [ -n "$path" ] || exit {REFUSED}; fi
folder=$(readlink -f -- "$(dirname -- "$path")") && path=$folder/$(basename -- "$path")
refuse_outside "$path"
[ -d "$path" ] && exit {FOLDER}
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
        PathRefused: empty, or with NUL.
    """
    if not path or "\0" in path:
        raise PathRefused("a path must not be empty or contain NUL")
    return posixpath.normpath(posixpath.join(workdir, path))


def argv(script: str, path: str, roots: Sequence[str], *more: object) -> list[str]:
    """The command for one of the scripts above."""
    return ["/bin/sh", "-c", script, "sh", path, "\n".join(roots), *map(str, more)]


def check(code: int | None, path: str, said: str) -> None:
    """Raise what the exit code of a script stands for."""
    if code == 0:
        return
    if code == REFUSED:
        raise PathRefused(f"{path} is outside the workspace, or leads out of it: use a path inside it")
    if code == SPECIAL:
        raise OSError(errno.EINVAL, "not a regular file", path)
    number = CODES.get(code or 0)
    if number is None:
        raise OSError(errno.EIO, said.strip()[:300] or f"exit code {code}", path)
    raise OSError(number, os.strerror(number), path)
