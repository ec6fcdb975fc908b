"""The first real error in the output of a parallel make, in one line."""

import os.path
import re
from dataclasses import dataclass
from pathlib import Path

_TAIL_LINES = 12
_LINE_CHARACTERS = 300

# Best first: in the output of a parallel make, what the compiler said of the source comes anywhere
# before or after the lines in which each make reports that something below it failed.
_ERRORS = tuple(
    re.compile(pattern)
    for pattern in (
        r"^\S[^:]*:\d+(:\d+)?: (fatal )?error: ",  # gcc, clang
        r"^\S[^:]*:\d+: Error: ",  # the assembler
        r"^\S*Kconfig\S*:\d+: ?(?!warning)\w",  # scripts/kconfig/conf
        r"undefined reference to |multiple definition of ",  # the linker, of a symbol
        r"^\S*ld(\.\w+)?: (?!.*warning:)",  # the linker, of anything else
        r"^(ERROR|FATAL|error): |: (fatal )?error: ",  # modpost, objtool, cc1
        r"\*\*\* (?!\[)",  # Makefile:12: *** what the Makefile says. Stop.
        r"\*\*\* \[",  # make[2]: *** [file:line: target] Error 1
    )
)
# "  CC      fs/readdir.o": what other jobs of a parallel make do meanwhile (scripts/Kbuild.include, quiet_cmd).
_PROGRESS = re.compile(r"^  [A-Z][A-Z0-9_]* +(\[M\] +)?\S+$")


@dataclass(frozen=True, slots=True)
class BuildError:
    """The line that names the error and the lines from it on."""

    reason: str
    tail: tuple[str, ...]


def first_error(output: str, source: Path, build: Path) -> BuildError:
    """The best error line of make's output, with paths relative to the source tree."""
    lines = [_relative(line.rstrip(), source, build) for line in output.splitlines() if _says_something(line)]
    for pattern in _ERRORS:
        for number, line in enumerate(lines):
            if pattern.search(line):
                return BuildError(line.strip(), tuple(lines[number : number + _TAIL_LINES]))
    return BuildError(lines[-1].strip() if lines else "make failed and said nothing", tuple(lines[-_TAIL_LINES:]))


def _says_something(line: str) -> bool:
    return bool(line.strip()) and _PROGRESS.match(line) is None


def _relative(line: str, source: Path, build: Path) -> str:
    """Without the source tree's path, as an absolute one or as ccache rewrites it, relative to the build."""
    for prefix in (f"{source}/", f"{os.path.relpath(source, build)}/"):
        line = line.replace(prefix, "")
    return line[:_LINE_CHARACTERS]
