"""The script around each shell command: it keeps working folder and exported variables from one call to the next.

The command comes on standard input and is run by `eval`, so that no quote or bracket in it can break the script around
it: a syntax error is the shell's own. bash is used where there is one, else the sandbox's `sh` (written for dash).
"""

from __future__ import annotations

PRELUDE_VARIABLE = "OPENSAGE_SHELL"

LAUNCH = (
    'if [ -z "${BASH_VERSION-}" ] && command -v bash >/dev/null 2>&1; then'
    """ exec bash -c 'eval "$OPENSAGE_SHELL"; eval "$__os_cmd"'; fi; """
    'eval "$OPENSAGE_SHELL"; eval "$__os_cmd"'
)
"""What the sandbox runs. One line, so that line numbers in the shell's messages are those of the command."""

# Names begin with __os_ and are never exported. `command -p` finds `cat` and `mv` even when the user's own PATH or
# functions hide them. The state file is looked at in a subshell first: a broken one would end dash.
_PRELUDE = r"""
__os_cmd=$(command -p cat; printf x)
__os_cmd=${__os_cmd%x}
exec </dev/null
unset OPENSAGE_SHELL
__os_home=$PWD
__os_state="${TMPDIR:-/tmp}/.opensage-shell-@TOKEN@"
if [ -f "$__os_state" ] && (. "$__os_state") >/dev/null 2>&1; then
  . "$__os_state" 2>/dev/null
  __os_back=${OLDPWD-}
  if ! cd "${OPENSAGE_PWD-.}" 2>/dev/null; then
    printf 'note: the folder %s is gone, this runs in %s\n' "$OPENSAGE_PWD" "$__os_home" >&2
    cd "$__os_home"
  fi
  OLDPWD=$__os_back
  unset OPENSAGE_PWD __os_back
fi
"""

# A command's own EXIT trap must not cost the state: `trap` is wrapped (bash: a function; dash, where a special built-in
# comes before functions: an alias), and what the command gives for EXIT runs before the saving.
_KEEP = r"""
__os_save() {
  OPENSAGE_PWD=$(pwd 2>/dev/null) || OPENSAGE_PWD=$PWD
  export OPENSAGE_PWD
  (umask 077; export -p >"$__os_state.new") 2>/dev/null && command -p mv -f "$__os_state.new" "$__os_state" 2>/dev/null
  return 0
}
__os_trap() {
  [ $# -gt 0 ] || { command trap; return; }
  case $1 in --) shift;; -?*) command trap "$@"; return;; esac
  if [ $# -lt 2 ]; then
    case "${1-}" in EXIT|0) set -- - EXIT;; *) command trap "$@"; return;; esac
  fi
  __os_act=$1; shift
  for __os_sig do
    case "$__os_sig/$__os_act" in
      EXIT/-|0/-|EXIT/|0/) command trap "$__os_end" EXIT;;
      EXIT/*|0/*) command trap "$__os_act
$__os_end" EXIT;;
      *) command trap -- "$__os_act" "$__os_sig";;
    esac
  done
}
__os_end='{ set +x; } 2>/dev/null; __os_save'
trap "$__os_end" EXIT
if [ -n "${BASH_VERSION-}" ]; then eval 'trap() { __os_trap "$@"; }'; else alias trap=__os_trap; fi
"""


def prelude(token: str, keep: bool = True) -> str:
    """What runs before the command: restores the state, and arranges that it is saved.

    Args:
        token: names the state file; letters and digits.
        keep: save the state at the end (a background command only starts from it).
    """
    return (_PRELUDE + (_KEEP if keep else "")).replace("@TOKEN@", token)
