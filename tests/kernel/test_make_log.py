from pathlib import Path

import pytest

from bisector.kernel.builddir import first_error, surely_of_the_source

SOURCE = Path("/run/7/source")
BUILD = Path("/run/7/build")


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        pytest.param(
            """\
  CC      drivers/md/error.o
make[3]: *** [/run/7/source/scripts/Makefile.build:250: fs/dcache.o] Error 1
/run/7/source/drivers/md/dm.c: In function 'dm_init':
/run/7/source/drivers/md/dm.c:7:9: error: 'dm_majors' undeclared (first use in this function)
    7 |         dm_majors++;
make[2]: *** [/run/7/source/scripts/Makefile.build:500: drivers] Error 2
""",
            "drivers/md/dm.c:7:9: error: 'dm_majors' undeclared (first use in this function)",
            id="gcc, after another make's line",
        ),
        pytest.param(
            "../source/fs/dcache.c:3:10: fatal error: linux/no.h: No such file or directory\ncompilation terminated.\n",
            "fs/dcache.c:3:10: fatal error: linux/no.h: No such file or directory",
            id="relative path by ccache",
        ),
        pytest.param(
            "../source/fs/dcache.c: At top level:\n../source/fs/dcache.c:3:1: internal compiler error: Bus error\n"
            "make[2]: *** [x] Error 1\n",
            "fs/dcache.c:3:1: internal compiler error: Bus error",
            id="gcc's own end",
        ),
        pytest.param(
            "/run/7/source/arch/x86/lib/copy.S: Assembler messages:\n"
            "/run/7/source/arch/x86/lib/copy.S:12: Error: no such instruction: `movx'\nmake[1]: *** [x] Error 1\n",
            "arch/x86/lib/copy.S:12: Error: no such instruction: `movx'",
            id="assembler",
        ),
        pytest.param(
            "ld: warning: orphan section\nld: init/main.o: in function `start_kernel':\n"
            "main.c:(.text+0x5): undefined reference to `dm_init'\nmake[1]: *** [Makefile:1212: vmlinux] Error 1\n",
            "main.c:(.text+0x5): undefined reference to `dm_init'",
            id="linker, symbol",
        ),
        pytest.param(
            "/usr/bin/ld: warning: vdso-note.o: missing .note.GNU-stack section implies executable stack\n"
            "/usr/bin/ld: NOTE: This behaviour is deprecated and will be removed in a future version of the linker\n"
            "make[3]: *** No rule to make target 'md/dm-bio-prison.o', needed by 'md/built-in.o'.  Stop.\n"
            "make[2]: *** [Makefile:561: drivers/md] Error 2\n",
            "make[3]: *** No rule to make target 'md/dm-bio-prison.o', needed by 'md/built-in.o'.  Stop.",
            id="make, after a warning of a linker's",
        ),
        pytest.param(
            "drivers/md/Kconfig:12:warning: ignoring type\ndrivers/md/Kconfig:14: syntax error\n"
            "make[2]: *** [x] Error 1\n",
            "drivers/md/Kconfig:14: syntax error",
            id="Kconfig",
        ),
        pytest.param(
            "make[1]: *** [x] Error 2\n"
            '/run/7/source/arch/x86/Makefile:178: *** "Compiler lacks asm-goto support.".  Stop.\n',
            'arch/x86/Makefile:178: *** "Compiler lacks asm-goto support.".  Stop.',
            id="Makefile",
        ),
        pytest.param("  CC a.o\nmake: *** [fs] Error 2\n", "make: *** [fs] Error 2", id="nothing better"),
        pytest.param(
            "make[1]: *** Waiting for unfinished jobs....\nmake[1]: *** [Makefile:3: x.o] Error 1\n",
            "make[1]: *** [Makefile:3: x.o] Error 1",
            id="make waits for the others",
        ),
        pytest.param("  CC a.o\nsomething odd\n\n", "something odd", id="nothing known"),
        pytest.param("", "make failed and said nothing", id="silence"),
    ],
)
def test_first_error(output: str, reason: str) -> None:
    assert first_error(output, SOURCE, BUILD)[0] == reason


def test_tail_begins_with_the_error_and_is_short() -> None:
    output = "  CC x.o\nfs/a.c:1:2: error: no\n" + "".join(f"line {n}\n" for n in range(100))
    _, tail = first_error(output, SOURCE, BUILD)
    assert tail[:2] == ("fs/a.c:1:2: error: no", "line 0")
    assert len(tail) == 12


SYNTAX = "../source/block/blk-timeout.c:113:16: error: implicit declaration of function 'f' [-Werror=x]\n"
FAILED = (
    "make[3]: *** [/run/7/source/scripts/Makefile.build:255: block/blk-timeout.o] Error 1\n"
    "make[3]: *** Deleting file 'block/blk-timeout.o'\n"
)
REST = """\
make[2]: *** [/run/7/source/scripts/Makefile.build:508: block] Error 2
make[2]: *** Waiting for unfinished jobs....
  CC      kernel/signal.o
make[1]: *** [/run/7/source/Makefile:2065: .] Error 2
make: *** [Makefile:250: __sub-make] Error 2
"""


@pytest.mark.parametrize(
    "output",
    [
        pytest.param(SYNTAX + "cc1: some warnings being treated as errors\n" + FAILED + REST, id="gcc"),
        pytest.param(
            "arch/x86/lib/copy.S: Assembler messages:\narch/x86/lib/copy.S:12: Error: no such instruction: `movx'\n"
            "make[3]: *** [scripts/Makefile.build:390: arch/x86/lib/copy.o] Error 1\n",
            id="assembler",
        ),
        pytest.param(
            "drivers/md/Kconfig:14: syntax error\nmake[2]: *** [/run/7/source/scripts/kconfig/Makefile:77: "
            "olddefconfig] Error 1\nmake[1]: *** [/run/7/source/Makefile:697: olddefconfig] Error 2\n",
            id="Kconfig",
        ),
    ],
)
def test_what_is_surely_of_the_source(output: str) -> None:
    assert surely_of_the_source(output, SOURCE, BUILD)


@pytest.mark.parametrize(
    "output",
    [
        pytest.param("", id="silence"),
        pytest.param(SYNTAX, id="make did not fail"),
        pytest.param(SYNTAX + REST, id="no recipe failed"),
        pytest.param(FAILED + REST, id="the compiler said nothing"),
        pytest.param(
            "ld: main.c:(.text+0x5): undefined reference to `dm_init'\nmake[1]: *** [Makefile:1212: vmlinux] Error 1\n",
            id="linker: a damaged object looks the same",
        ),
        pytest.param(SYNTAX + FAILED + "make[3]: *** [Makefile:1212: vmlinux] Error 1\n", id="another recipe, too"),
        pytest.param(SYNTAX + FAILED.replace("Error 1", "Error 137"), id="ended by SIGKILL"),
        pytest.param(SYNTAX + FAILED + "gcc: Killed signal terminated program cc1\n", id="killed compiler"),
        pytest.param(SYNTAX + FAILED + "during RTL pass: expand\nx.c:1:1: internal compiler error: in f\n", id="ICE"),
        pytest.param(SYNTAX + FAILED + "{standard input}: Fatal error: can't write 12: No space left\n", id="full"),
        pytest.param(SYNTAX + FAILED + "cc1: out of memory allocating 65536 bytes\n", id="memory"),
        pytest.param(SYNTAX + FAILED + "/bin/sh: 1: Cannot fork: Resource temporarily unavailable\n", id="processes"),
        pytest.param(SYNTAX + FAILED + "x" * 400 + ": Input/output error\n", id="disk, in a long line"),
        pytest.param(SYNTAX + FAILED + "/bin/sh: 1: bc: not found\n", id="missing program"),
        pytest.param(SYNTAX + FAILED + "ccache: error: Failed to create directory\n", id="ccache"),
        pytest.param(SYNTAX + FAILED + "make: warning:  Clock skew detected.\n", id="time"),
        pytest.param(
            "fs/x.c:3:10: fatal error: gelf.h: No such file or directory\n"
            "make[3]: *** [scripts/Makefile.build:255: fs/x.o] Error 1\n",
            id="missing header",
        ),
        pytest.param(
            "scripts/sign-file.c:9:2: error: 'ENGINE' undeclared\n"
            "make[3]: *** [/run/7/source/scripts/Makefile.host:111: scripts/sign-file] Error 1\n",
            id="host program",
        ),
        pytest.param(
            "check.c:9:2: error: 'Elf64_Rela' undeclared\n"
            "make[4]: *** [/run/7/source/tools/build/Makefile.build:97: /run/7/build/tools/objtool/check.o] Error 1\n",
            id="objtool",
        ),
        pytest.param(
            "/usr/include/elf.h:9:2: error: unknown type\nmake[3]: *** [scripts/Makefile.build:255: a.o] Error 1\n",
            id="this host's header",
        ),
        pytest.param(
            "scripts/Kconfig.include:39: this linker is not supported\n"
            "make[2]: *** [scripts/kconfig/Makefile:77: olddefconfig] Error 1\n",
            id="Kconfig about the host",
        ),
        pytest.param("arch/x86/Makefile:178: *** Compiler lacks asm-goto support.  Stop.\n", id="Makefile"),
    ],
)
def test_what_may_be_the_hosts(output: str) -> None:
    assert not surely_of_the_source(output, SOURCE, BUILD)
