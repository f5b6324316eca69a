# The first command of a sandbox's container: ends process trees when asked, and the container when its input ends.
#
# Requests come one a line, `ID WORD ARGUMENTS`; each is answered with a line `ID ANSWER`. Only what the shell has built
# in is used after the start, so that it works when no process can be started any more. Runs in dash, bash and busybox.
# Arguments: 1 when the container is ours alone, else 0; the folder to look at.

own=$1
trap '' HUP INT TERM QUIT PIPE

# state, parent, session and start of a process; its name comes before the last ')' and may hold anything.
look() {
    text=
    while IFS= read -r line; do text="$text$line "; done < "/proc/$1/stat" || return 1
    [ "$text" ] || return 1
    set -f
    set -- ${text##*)}
    set +f
    state=$1 parent=$2 session=$4 start=${20}
} 2> /dev/null

signal() { kill -s "$1" -- "$2" 2> /dev/null; }

# One pass: everything below process $1, in its session, or (in our own container) orphaned since time $2, into $found.
find_tree() {
    all= found=" "
    for place in /proc/[0-9]*; do
        pid=${place#/proc/}
        [ "$pid" = 1 ] || [ "$pid" = $$ ] || ! look "$pid" || [ "$state" = Z ] && continue
        all="$all $pid:$parent"
        if [ "$pid" = "$1" ] || [ "$session" = "$1" ]; then
            found="$found$pid "
        elif [ "$own" = 1 ] && [ "$parent" = 1 ] && [ "$start" -ge "$2" ]; then
            found="$found$pid "
        fi
    done
    more=1
    while [ "$more" ]; do
        more=
        for entry in $all; do
            case $found in *" ${entry%:*} "*) continue ;; esac
            case $found in *" ${entry#*:} "*) found="$found${entry%:*} " more=1 ;; esac
        done
    done
}

# Everything is stopped at one stroke meanwhile, so that nothing can fork its way out of the pass.
end_tree() {
    passes=0
    while [ $passes -lt 40 ]; do
        passes=$((passes + 1))
        [ "$own" = 1 ] && signal STOP -1
        find_tree "$1" "$2"
        for pid in $found; do signal KILL "$pid"; done
        [ "$own" = 1 ] && signal CONT -1
        [ "$found" = " " ] && return
    done
}

# How often memory ran out, and how often a process could not be started.
counts() {
    memory=0 processes=0
    for file in /sys/fs/cgroup/memory/memory.oom_control /sys/fs/cgroup/memory.events; do
        [ -r $file ] && while read -r key value; do [ "$key" = oom_kill ] && memory=$value; done < $file
    done
    for file in /sys/fs/cgroup/pids/pids.events /sys/fs/cgroup/pids.events; do
        [ -r $file ] && while read -r key value; do [ "$key" = max ] && processes=$value; done < $file
    done
    answer="$memory $processes"
}

python=$(command -v python3 || command -v python) || python=
shell=/bin/sh
[ -x /bin/bash ] && shell=/bin/bash
set -- $(ls -di -- "$2" 2> /dev/null)
printf '0 %s %s %s\n' "$shell" "${1:-0}" "$python"
while read -r id word one two; do
    answer=done
    case $word in
        tree) end_tree "$one" "$two" ;;
        all) [ "$own" = 1 ] && signal KILL -1 ;;
        counts) counts ;;
        *) answer=unknown ;;
    esac
    printf '%s %s\n' "$id" "$answer"
done
