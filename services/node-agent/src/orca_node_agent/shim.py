"""The shell between the agent and a task: it outlives the agent and writes down how it ended.

Each name is written whole (under another name, then renamed). ``claim`` is made with O_EXCL, so
of two shims, or a shim and a stop, only one wins: a command runs at most once per directory.
The command leads a session of its own, so SIGKILL for its group leaves the shim alive to record
it, and what the command left behind in its group is killed when it ends, as in a container.
"""

from __future__ import annotations

import shutil

CLAIMED_BY_STOP = "stopped"

_SCRIPT = """
dir=$1; shift
set -C
{ echo shim > "$dir/claim"; } 2>/dev/null || exit 0
set +C
read -r shim < "/proc/$$/stat"
@setsid@ /bin/sh -c '@command@' "$dir" "$shim" "$@" &
child=$!
wait "$child"
code=$?
kill -s KILL -- "-$child" 2>/dev/null
echo "$code" > "$dir/exit.new"
@mv@ "$dir/exit.new" "$dir/exit"
"""

# Written by the command's own process before it becomes the command: one that ends at once could
# be gone before anybody else looked.
_COMMAND = """
dir=$0; shim=$1; shift
read -r boot < /proc/sys/kernel/random/boot_id
read -r own < "/proc/$$/stat"
printf "%s\\n" "$boot" "$shim" "$own" > "$dir/pid.new" || exit 126
@mv@ "$dir/pid.new" "$dir/pid" || exit 126
exec "$@"
"""


def shim_command(attempt_dir: str, command: tuple[str, ...]) -> list[str]:
    """The argument vector of the shim. The script names its helpers by their whole paths,
    because its PATH is the task's."""
    script = _SCRIPT.replace("@command@", _COMMAND)
    script = script.replace("@setsid@", _tool("setsid")).replace("@mv@", _tool("mv"))
    return ["/bin/sh", "-c", script, "orca-shim", attempt_dir, *command]


def _tool(name: str) -> str:
    found = shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin")
    if found is None:
        raise FileNotFoundError(f"{name} is not installed; the process executor needs it")
    return found
