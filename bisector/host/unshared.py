"""A sandbox of what util-linux has: unshare(1), mount(8), pivot_root(8) and setpriv(1), put together by sh.

For hosts without bubblewrap, and with the same guarantees (:mod:`bisector.host.sandbox`, whose tests are for both). It
is slower: a process for each step. What fails on the way ends it before the command is started.
"""

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from bisector.host.build_user import build_user

PROGRAM = "unshare"
# What a first line of output may begin with when it is not the command's.
STEPS = ("setpriv", PROGRAM, "sh", "mount", "umount", "mkdir", "cp", "rm", "cat", "pivot_root")
_ROOT = "/sys"  # where the new root is made: a directory of every host that no place lies in
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = ("/dev/fd", "/dev/stdin", "/dev/stdout", "/dev/stderr")
_NAMESPACES = ("--mount", "--net", "--ipc", "--uts", "--pid", "--fork", "--kill-child")
_NO_MORE_RIGHTS = ("--inh-caps=-all", "--no-new-privs", "--")
_SAFE = "nosuid,nodev"
# An ordinary user has rights in its own namespace alone, and keeps them there until all is mounted. No further one can
# be made in it. For root that number would be the host's.
_FOR_USERS = ("--user", "--map-current-user", "--keep-caps")
_NO_NAMESPACES = "echo 0 > /proc/sys/user/max_user_namespaces\n"
_SCRIPT = """\
set -e
test $$ -eq 1 # mounts in any other namespace would be the host's
here=$PWD path=$PATH mask=$(umask)
PATH=$PATH:/usr/sbin:/sbin
umask 022
{limit}mount -n -t tmpfs -o {safe},mode=755 tmpfs {root}
mkdir {root}/tmp {root}/proc {root}/dev {root}/dev/shm
mount -n -t tmpfs -o {safe},mode=1777 tmpfs {root}/tmp
mount -n -t tmpfs -o {safe},mode=1777 tmpfs {root}/dev/shm
mkdir -m 777 {root}{home}
mkdir -p {directories}
for file in {files}; do : > "$file"; done
{links}cp -P {device_links} {root}/dev
cp -rP --parents {copied} {root}
cat > {root}/fstab << 'END'
{fstab}
END
mount -n -a -T {root}/fstab
rm {root}/fstab
{remounts}mount -n -o remount,bind,ro,{safe} {root}
cd {root}
pivot_root . .{home}
umount -n -i -l {home}
export HOME={home} PATH="$path"
unset TMPDIR XDG_CACHE_HOME XDG_RUNTIME_DIR
umask "$mask"
cd "$here" 2> /dev/null || cd
exec {rights} "$@"
"""


def words(system: Iterable[Path], copied: Iterable[Path], places: Mapping[str, bool], first: tuple[str, ...], home: str
          ) -> tuple[str, ...]:  # fmt: skip
    """What is put before a command: ``places`` are seen, and can be written where that is so; ``copied`` are files.

    ``system`` are directories, and links to such. ``first`` is what the first process is; it waits for the command.
    """
    user = build_user()
    links = [path for path in system if path.is_symlink()]
    shown = {**{str(path): False for path in system if path not in links}, **places}
    below = [path for path in _mounted() if _is_below_readable(path, shown) and os.access(path, os.F_OK)]
    files = [place for place in shown if not Path(place).is_dir()]
    if user is None:
        rights: tuple[str, ...] = ("setpriv", "--ambient-caps=-all", "--bounding-set=-all", *_NO_MORE_RIGHTS, *first)
    else:
        kept = "--bounding-set=-all,+setuid,+setgid,+setpcap"
        rights = ("setpriv", kept, *_NO_MORE_RIGHTS, *first, *user.become)
    script = _SCRIPT.format(
        root=_ROOT, home=home, safe=_SAFE, limit=_NO_NAMESPACES if user is None else "", rights=shlex.join(rights),
        directories=_at_root(str(Path(place).parent) if place in files else place for place in shown),
        files=_at_root((*(f"/dev/{name}" for name in _DEVICES), *files)),
        links=f"cp -P {shlex.join(map(str, links))} {_ROOT}\n" if links else "",
        device_links=shlex.join(_DEVICE_LINKS), copied=shlex.join(map(str, copied)),
        fstab="\n".join(_table(shown)),
        remounts="".join(f"mount -n -o remount,bind,ro,{_SAFE} {_at_root([place])}\n" for place in below),
    )  # fmt: skip
    namespaces = (*(_FOR_USERS if user is None else ()), *_NAMESPACES)
    return ("setpriv", "--pdeathsig", "KILL", "--", PROGRAM, *namespaces, "--", "sh", "-c", script, "sh")


def _at_root(places: Iterable[str]) -> str:
    return shlex.join(_ROOT + place for place in places)


def _table(shown: Mapping[str, bool]) -> Iterator[str]:
    """As of fstab(5); a place comes after the one that it lies in."""
    for name in _DEVICES:
        yield f"/dev/{name} {_ROOT}/dev/{name} none bind 0 0"
    yield f"proc {_ROOT}/proc proc ro,noexec,{_SAFE} 0 0"
    for place in sorted(shown):
        word = "".join(f"\\{ord(letter):03o}" if letter in " \t\n\\" else letter for letter in place)
        yield f"{word} {_ROOT}{word} none rbind,{'rw' if shown[place] else 'ro'},{_SAFE} 0 0"


def _mounted() -> list[str]:
    """Where something is mounted (proc_pid_mountinfo(5)); what is mounted below a place comes with it, as it is."""
    lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    fields = (line.split(b" ")[4].decode("unicode_escape").encode("latin-1") for line in lines)
    return sorted({os.fsdecode(field) for field in fields})


def _is_below_readable(path: str, shown: Mapping[str, bool]) -> bool:
    above = [place for place in shown if path != place and Path(path).is_relative_to(place)]
    return path not in shown and bool(above) and not shown[max(above, key=len)]
