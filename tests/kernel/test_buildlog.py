from pathlib import Path

import pytest

from bisector.kernel.buildlog import first_error

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
            "ld: warning: orphan section\nld: cannot find vmlinux.a: No such file or directory\n"
            "make: *** [x] Error 1\n",
            "ld: cannot find vmlinux.a: No such file or directory",
            id="linker, else",
        ),
        pytest.param(
            "drivers/md/Kconfig:12:warning: ignoring type\ndrivers/md/Kconfig:14: syntax error\n"
            "make[2]: *** [x] Error 1\n",
            "drivers/md/Kconfig:14: syntax error",
            id="Kconfig",
        ),
        pytest.param(
            "drivers/md/Kconfig:3:error: recursive dependency detected!\nmake[2]: *** [x] Error 1\n",
            "drivers/md/Kconfig:3:error: recursive dependency detected!",
            id="Kconfig recursion",
        ),
        pytest.param(
            "make[1]: *** [x] Error 2\n"
            '/run/7/source/arch/x86/Makefile:178: *** "Compiler lacks asm-goto support.".  Stop.\n',
            'arch/x86/Makefile:178: *** "Compiler lacks asm-goto support.".  Stop.',
            id="Makefile",
        ),
        pytest.param(
            "make[2]: *** No rule to make target 'fs/x.o', needed by 'fs/built-in.a'.  Stop.\nmake: *** [fs] Error 2\n",
            "make[2]: *** No rule to make target 'fs/x.o', needed by 'fs/built-in.a'.  Stop.",
            id="no rule",
        ),
        pytest.param("  CC a.o\nmake: *** [fs] Error 2\n", "make: *** [fs] Error 2", id="nothing better"),
        pytest.param("  CC a.o\nsomething odd\n\n", "something odd", id="nothing known"),
        pytest.param("", "make failed and said nothing", id="silence"),
    ],
)
def test_first_error(output: str, reason: str) -> None:
    assert first_error(output, SOURCE, BUILD).reason == reason


def test_tail_begins_with_the_error_and_is_short() -> None:
    output = "  CC x.o\nfs/a.c:1:2: error: no\n" + "".join(f"line {n}\n" for n in range(100))
    tail = first_error(output, SOURCE, BUILD).tail
    assert tail[:2] == ("fs/a.c:1:2: error: no", "line 0")
    assert len(tail) == 12
