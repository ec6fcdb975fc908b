"""Quirks: what old trees need to build with new tools, decided by the source and not by its version.

A bisection meets trees between releases, with backports and reverts, for which a version says nothing. A quirk may edit
the checked-out sources for the time of one build. ``git checkout --force`` restores an edited file, since its inode,
time and size differ from git's index, and ``git clean`` removes a half-written file that a kill left beside it.
"""

import hashlib
import json
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bisector.core.errors import InfraError
from bisector.host.files import inside, write_atomically
from bisector.kernel import sources

_STAMPS = "edits.json"
_Stamps = dict[str, tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Sign:
    """A condition: the file exists, contains ``has`` and does not contain ``lacks`` (unless that is empty)."""

    file: str
    has: str = ""
    lacks: str = ""

    def shows(self, source: Path) -> bool:
        """Whether the condition holds for this source tree."""
        text = sources.text(source, self.file)
        return text is not None and self.has in text and not (self.lacks and self.lacks in text)


@dataclass(frozen=True, slots=True)
class Edit:
    """A replacement of ``old``, which occurs exactly once in ``file``, by ``new``, for the time of a build.

    Both always differ in length, so that git detects the change by the file's size alone.
    """

    file: str
    old: str
    new: str

    def fits(self, source: Path) -> bool:
        """Whether ``old`` occurs exactly once."""
        text = sources.text(source, self.file)
        return text is not None and text.count(self.old) == 1


@dataclass(frozen=True, slots=True)
class Quirk:
    """A problem that some trees have, and the remedy while one is built.

    It applies to trees that show all ``signs`` and have the text of each edit exactly once. If a backport is written
    differently, nothing is done, and the build reports the problem. ``variables`` are given to make.
    """

    name: str
    signs: tuple[Sign, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    edits: tuple[Edit, ...] = ()

    def applies(self, source: Path) -> bool:
        """Whether this source tree, as git checked it out, needs the quirk."""
        return all(sign.shows(source) for sign in self.signs) and all(edit.fits(source) for edit in self.edits)


def files(table: Iterable[Quirk]) -> frozenset[str]:
    """The files, relative to the top of the tree, that decide which quirks apply, or that quirks edit."""
    looked_at = [[sign.file for sign in quirk.signs] + [edit.file for edit in quirk.edits] for quirk in table]
    return frozenset(file for files_ in looked_at for file in files_)


def digest(table: Iterable[Quirk]) -> str:
    """A digest of what a table does: with the tree it determines the build, so a kernel's key needs no checkout."""
    acts = [(quirk.name, quirk.signs, quirk.variables, quirk.edits) for quirk in table]
    return hashlib.sha256(repr(acts).encode()).hexdigest()


def apply_edits(edits: Iterable[Edit], source: Path, state: Path) -> None:
    """Edit the sources, which are as git checked them out; ``state`` is a directory beside the build.

    A file that gets the same content as at the last build here gets that build's modification time back: otherwise each
    commit would recompile everything that includes it. Raises ``OSError``, and :class:`InfraError` if a text has
    disappeared since it was checked a moment ago.
    """
    before, now, contents = _Stamps(), _Stamps(), dict[str, bytes]()
    with suppress(FileNotFoundError, ValueError, TypeError):
        stamps = json.loads((state / _STAMPS).read_bytes()).items()
        before = {file: (str(sha256), int(mtime_ns)) for file, (sha256, mtime_ns) in stamps}
    # A file that is not edited this time may be compiled unedited, which makes its old time stamp meaningless.
    write_atomically(state / _STAMPS, b"{}")
    for edit in edits:
        text = contents.get(edit.file) or sources.content(source, edit.file) or b""
        old = edit.old.encode()
        if text.count(old) != 1:
            raise InfraError(f"{source / edit.file} was changed by somebody else: {edit.old!r} is not there once")
        contents[edit.file] = text.replace(old, edit.new.encode())
    for file, content in contents.items():
        sha256 = hashlib.sha256(content).hexdigest()
        known, mtime_ns = before.get(file, ("", 0))
        path = inside(source, file)
        write_atomically(path, content, stat.S_IMODE(path.stat().st_mode))
        if known == sha256:
            os.utime(path, ns=(mtime_ns, mtime_ns))
        now[file] = (sha256, path.stat().st_mtime_ns)
    write_atomically(state / _STAMPS, json.dumps(now).encode())


# Known problems of building old trees with new tools. Before each row is what happens without it, and the mainline
# commit that ended the problem; a tree that has the cure does not show the signs. A row that was not tried is from the
# literature. A row changes the kernel only if the tree would not build, link or boot without it; a row about host
# programs changes no kernel.
QUIRKS = (
    # The compiler
    # gcc with --enable-default-pie (Debian's since 6): code model kernel does not support PIC mode. Not tried. Cured by
    # 8ae94224c9d7 ("kbuild: add -fno-PIE") (in v4.9).
    Quirk(
        name="no-pie",
        signs=(Sign("Makefile", has="KBUILD_CFLAGS", lacks="-fno-PIE"),),
        variables=(("KAFLAGS", "-fno-PIE"), ("KCFLAGS", "-fno-PIE")),
    ),
    # gcc 7: undefined reference to `____ilog2_NaN'; with objtool: ignoring attribute 'noreturn' because it conflicts
    # with attribute 'const' [-Werror=attributes]. Cured by 474c90156c8d ("give up on gcc ilog2() constant
    # optimizations") (in v4.11).
    Quirk(
        name="ilog2-nan",
        edits=tuple(
            Edit(file, old, new)
            for file in ("include/linux/log2.h", "tools/include/linux/log2.h")
            for old, new in (
                ("extern __attribute__((const, noreturn))\nint ____ilog2_NaN(void);\n", ""),
                ("(n) < 1 ? ____ilog2_NaN() :", "(n) < 2 ? 0 :"),
                ("\t\t____ilog2_NaN()\t\t\t\\\n", "\t\t0\t\\\n"),
            )
        ),
    ),
    # gcc 10 with CONFIG_STACKPROTECTOR: panic, stack-protector: Kernel stack is corrupted in: start_secondary. Cured by
    # a9a3ed1eff36 ("x86: Fix early boot crash on gcc-10, third try") (in v5.7).
    Quirk(
        name="start-secondary-canary",
        signs=(Sign("include/linux/compiler.h", lacks="prevent_tail_call_optimization"),),
        # The barrier after the call keeps gcc from turning it into a jump past the check of the canary.
        edits=(
            Edit(
                "arch/x86/kernel/smpboot.c",
                "\tcpu_startup_entry(CPUHP_AP_ONLINE_IDLE);\n}",
                "\tcpu_startup_entry(CPUHP_AP_ONLINE_IDLE);\n\tmb();\n}",
            ),
        ),
    ),
    # The same in start_kernel. Not tried: which function ends in a jump is the compiler's choice, and v4.19 built by
    # gcc 12 boots without this quirk.
    Quirk(
        name="start-kernel-canary",
        signs=(Sign("include/linux/compiler.h", lacks="prevent_tail_call_optimization"),),
        edits=(
            Edit(
                "init/main.c", "we're now alive */\n\trest_init();\n}", "we're now alive */\n\trest_init();\n\tmb();\n}"
            ),
        ),
    ),
    # The same in start_kernel, since v4.20. Not tried.
    Quirk(
        name="start-kernel-canary-arch",
        signs=(Sign("include/linux/compiler.h", lacks="prevent_tail_call_optimization"),),
        edits=(
            Edit(
                "init/main.c",
                "we're now alive */\n\tarch_call_rest_init();\n}",
                "we're now alive */\n\tarch_call_rest_init();\n\tmb();\n}",
            ),
        ),
    ),
    # gcc 10 with CONFIG_RANDOMIZE_BASE: multiple definition of `__force_order'. Not tried. Cured by df6d4f9db79c
    # ("x86/boot/compressed: Don't declare __force_order in kaslr_64.c") (in v5.6).
    Quirk(
        name="force-order-pagetable",
        signs=(Sign("arch/x86/boot/compressed/pgtable_64.c", has="\nunsigned long __force_order;"),),
        edits=(Edit("arch/x86/boot/compressed/pagetable.c", "\nunsigned long __force_order;\n", "\n"),),
    ),
    # The same in trees that declare it in another file. Tried.
    Quirk(
        name="force-order-kaslr",
        signs=(Sign("arch/x86/boot/compressed/pgtable_64.c", has="\nunsigned long __force_order;"),),
        edits=(Edit("arch/x86/boot/compressed/kaslr_64.c", "\nunsigned long __force_order;\n", "\n"),),
    ),
    # gcc 9 with -fcf-protection by default (Ubuntu's): not compatible with -mindirect-branch. Not tried. Cured by
    # 29be86d7f9cb ("kbuild: add -fcf-protection=none when using retpoline flags") (in v5.3).
    Quirk(
        name="cf-protection",
        signs=(Sign("Makefile", lacks="-fcf-protection"), Sign("arch/x86/Makefile", lacks="-fcf-protection")),
        edits=(
            Edit(
                "arch/x86/Makefile",
                "KBUILD_CFLAGS += $(RETPOLINE_CFLAGS)",
                "KBUILD_CFLAGS += $(RETPOLINE_CFLAGS) $(call cc-option,-fcf-protection=none)",
            ),
        ),
    ),
    # gcc 15, whose default is C23: cannot use keyword 'false' as enumeration constant, in arch/x86/boot (tried with gcc
    # 14 -std=gnu23). Cured by ee2ab467bddf ("x86/boot: Use '-std=gnu11' to fix build with GCC 15") (in v6.14).
    Quirk(
        name="boot-gnu11",
        signs=(Sign("arch/x86/Makefile", lacks="-std=gnu11"),),
        edits=(
            Edit(
                "arch/x86/Makefile",
                "REALMODE_CFLAGS\t:= $(M16_CFLAGS) ",
                "REALMODE_CFLAGS\t:= -std=gnu11 $(M16_CFLAGS) ",
            ),
            Edit(
                "arch/x86/boot/compressed/Makefile",
                "\nKBUILD_CFLAGS := -m$(BITS) ",
                "\nKBUILD_CFLAGS := -std=gnu11 -m$(BITS) ",
            ),
        ),
    ),
    # The linker and other binutils
    # binutils 2.31 made 4 KiB the default maximum page size of x86_64: the load segments are no longer 2 MiB-aligned
    # and the kernel dies in early boot, before it can print. Cured by e3d03598e8ae ("x86/build/64: Force the linker to
    # use 2MB page size") (in v4.16).
    Quirk(
        name="max-page-size",
        signs=(Sign("arch/x86/Makefile", lacks="max-page-size"),),
        variables=(("LD", "ld -z max-page-size=0x200000"),),
    ),
    # binutils 2.31: Unsupported relocation type: R_X86_64_PLT32 (4) with CONFIG_RANDOMIZE_BASE, and no module can be
    # loaded. Cured by b21ebf2fb4cd ("x86: Treat R_X86_64_PLT32 as R_X86_64_PC32") (in v4.16).
    Quirk(
        name="plt32",
        signs=(Sign("arch/x86/tools/relocs.c", lacks="case R_X86_64_PLT32:"),),
        edits=tuple(
            Edit(file, "case R_X86_64_PC32:", "case R_X86_64_PC32:\n\tcase R_X86_64_PLT32:")
            for file in ("arch/x86/tools/relocs.c", "arch/x86/kernel/module.c", "arch/x86/kernel/machine_kexec_64.c")
        ),
    ),
    # binutils 2.36 leaves out unused section symbols: thunk_64.o: warning: objtool: missing symbol table. Cured by
    # 1d489151e9f9 ("objtool: Don't fail on missing symbol table") (in v5.11).
    Quirk(
        name="objtool-no-symbols",
        edits=(Edit("tools/objtool/elf.c", 'WARN("missing symbol table");\n\t\treturn -1;', "return 0;"),),
    ),
    # make
    # make 4.3: each command with a # in it counts as changed, so that every build compiles all. Cured by 9564a8cf422d
    # ("Kbuild: fix # escaping in .cmd files for future Make") (in v4.17).
    Quirk(
        name="make-number-sign",
        signs=(Sign("scripts/Kbuild.include", lacks="pound"),),
        edits=(
            Edit(
                "scripts/Kbuild.include",
                r"make-cmd = $(call escsq,$(subst \#,\\\#,$(subst $$,$$$$,$(cmd_$(1)))))",
                "pound := \\#\nmake-cmd = $(call escsq,$(subst $(pound),$$(pound),$(subst $$,$$$$,$(cmd_$(1)))))",
            ),
        ),
    ),
    # Any make: two commands of one target take turns, arch/x86/boot/compressed/vmlinux is linked at every other build,
    # and its .cmd file never tells the same as the last time. Cured by 92a4728608a8 ("x86/boot: Fix if_changed build
    # flip/flop bug") (in v4.18).
    Quirk(
        name="boot-link-flip",
        edits=(
            Edit(
                "arch/x86/boot/compressed/Makefile",
                "\n$(obj)/vmlinux: $(vmlinux-objs-y) FORCE\n"
                "\t$(call if_changed,check_data_rel)\n\t$(call if_changed,ld)\n",
                "\ncmd_check-and-link-vmlinux = $(cmd_check_data_rel); $(cmd_ld)\n"
                "$(obj)/vmlinux: $(vmlinux-objs-y) FORCE\n\t$(call if_changed,check-and-link-vmlinux)\n",
            ),
        ),
    ),
    # make 4.3 with objtool: .fixdep.o.cmd:1: *** missing separator.  Stop. Cured by 9feeb638cde0 ("tools build: fix #
    # escaping in .cmd files for future Make") (in v4.18).
    Quirk(
        name="make-number-sign-tools",
        signs=(Sign("tools/build/Build.include", lacks="pound"),),
        edits=(
            Edit(
                "tools/build/Build.include",
                r"make-cmd = $(call escsq,$(subst \#,\\\#,$(subst $$,$$$$,$(cmd_$(1)))))",
                "pound := \\#\nmake-cmd = $(call escsq,$(subst $(pound),$$(pound),$(subst $$,$$$$,$(cmd_$(1)))))",
            ),
            Edit("tools/build/Build.include", r"printf '\# cannot", "printf '$(pound) cannot"),
            Edit("tools/build/Build.include", r"printf '\# using", "printf '$(pound) using"),
        ),
    ),
    # make 4.3: orc_dump.c: error: 'elf_getshnum' is deprecated [-Werror=deprecated-declarations]. Cured by 9564a8cf422d
    # ("Kbuild: fix # escaping in .cmd files for future Make") (in v4.17).
    Quirk(
        name="objtool-libelf-probe",
        edits=(Edit("tools/objtool/Makefile", r"echo '\#include <libelf.h>'", r"printf '\043include <libelf.h>\n'"),),
    ),
    # Programs of the host that the build compiles and runs
    # gcc 10 as the host's compiler, with CONFIG_OF: multiple definition of `yylloc'. Cured by e33a814e772c
    # ("scripts/dtc: Remove redundant YYLOC global declaration") (in v5.6).
    Quirk(
        name="dtc-yylloc",
        edits=(Edit("scripts/dtc/dtc-lexer.l", "\nYYLTYPE yylloc;\n", "\nextern YYLTYPE yylloc;\n"),),
    ),
    # The same in trees that carry what flex made (up to v4.16).
    Quirk(
        name="dtc-yylloc-shipped",
        edits=(Edit("scripts/dtc/dtc-lexer.lex.c_shipped", "\nYYLTYPE yylloc;\n", "\nextern YYLTYPE yylloc;\n"),),
    ),
    # A newer glibc, with CONFIG_SECURITY_SELINUX: New address family defined, please update secclass_map. Cured by
    # dfbd199a7cfe ("selinux: use kernel linux/socket.h for genheaders and mdp") (in v5.2).
    Quirk(
        name="selinux-families",
        signs=(Sign("security/selinux/include/classmap.h", has="#if PF_MAX >", lacks="linux/socket.h"),),
        edits=tuple(
            Edit(file, "#include <sys/socket.h>\n", "")
            for file in ("scripts/selinux/genheaders/genheaders.c", "scripts/selinux/mdp/mdp.c")
        ),
    ),
    # gcc 8 with objtool: pager.c: error: passing argument 2 to restrict-qualified parameter. Cured by ad343a98e74e
    # ("tools/lib/subcmd/pager.c: do not alias select() params") (in v4.16).
    Quirk(
        name="libsubcmd-select",
        edits=(
            Edit(
                "tools/lib/subcmd/pager.c",
                "\tfd_set in;\n\n\tFD_ZERO(&in);\n\tFD_SET(0, &in);\n\tselect(1, &in, NULL, &in, NULL);",
                "\tfd_set in, exception;\n\n\tFD_ZERO(&in);\n\tFD_SET(0, &in);\n\texception = in;\n"
                "\tselect(1, &in, NULL, &exception, NULL);",
            ),
        ),
    ),
    # glibc 2.38 with objtool: error: redundant redeclaration of 'strlcpy' [-Werror=redundant-decls]. Cured by
    # 6c4798d3f08b ("tools lib: Fix builds when glibc contains strlcpy()") (in v5.6).
    Quirk(
        name="tools-strlcpy",
        signs=(Sign("tools/include/linux/string.h", lacks="-Wredundant-decls"),),
        edits=(
            Edit(
                "tools/include/linux/string.h",
                "\nextern size_t strlcpy(char *dest, const char *src, size_t size);\n",
                '\n#pragma GCC diagnostic ignored "-Wredundant-decls"\n'
                "extern size_t strlcpy(char *dest, const char *src, size_t size);\n",
            ),
        ),
    ),
    # gcc 12 with objtool: pointer may be used after 'realloc' [-Werror=use-after-free]. Cured by 52a9dab6d892
    # ("libsubcmd: Fix use-after-free for realloc(..., 0)") (in v5.17).
    Quirk(
        name="libsubcmd-realloc",
        edits=(
            Edit(
                "tools/lib/subcmd/subcmd-util.h",
                "\tif (!ret && !size)\n\t\tret = realloc(ptr, 1);\n\tif (!ret) {\n\t\tret = realloc(ptr, size);\n"
                "\t\tif (!ret && !size)\n\t\t\tret = realloc(ptr, 1);\n\t\tif (!ret)\n"
                '\t\t\tdie("Out of memory, realloc failed");\n\t}\n',
                '\tif (!ret)\n\t\tdie("Out of memory, realloc failed");\n',
            ),
        ),
    ),
)
