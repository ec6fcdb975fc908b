"""The lines of real trees that tell whether a quirk is needed: with the trouble, and after its cure."""

Tree = dict[str, str]

_OLD_MAKE_CMD = r"make-cmd = $(call escsq,$(subst \#,\\\#,$(subst $$,$$$$,$(cmd_$(1)))))"
_NEW_MAKE_CMD = "pound := \\#\nmake-cmd = $(call escsq,$(subst $(pound),$$(pound),$(subst $$,$$$$,$(cmd_$(1)))))"
_RELOCATIONS = ("arch/x86/tools/relocs.c", "arch/x86/kernel/module.c", "arch/x86/kernel/machine_kexec_64.c")
_GENHEADERS = ("scripts/selinux/genheaders/genheaders.c", "scripts/selinux/mdp/mdp.c")
_LOG2 = ("include/linux/log2.h", "tools/include/linux/log2.h")
_PGTABLE = {"arch/x86/boot/compressed/pgtable_64.c": "\nunsigned long __force_order;\n"}
_SELINUX_CLASSES = "#if PF_MAX > 44\n#error New address family defined, please update secclass_map.\n#endif\n"
_START_SECONDARY = {
    "arch/x86/kernel/smpboot.c": "\twmb();\n\tcpu_startup_entry(CPUHP_AP_ONLINE_IDLE);\n}\n\nint other;\n"
}
_OLD_REALLOC = """\
	void *ret = realloc(ptr, size);
	if (!ret && !size)
		ret = realloc(ptr, 1);
	if (!ret) {
		ret = realloc(ptr, size);
		if (!ret && !size)
			ret = realloc(ptr, 1);
		if (!ret)
			die("Out of memory, realloc failed");
	}
	return ret;
"""
_OLD_LOG2 = (
    "extern __attribute__((const, noreturn))\nint ____ilog2_NaN(void);\n"
    "\t\t(n) < 1 ? ____ilog2_NaN() :\t\\\n"
    "\t\t(n) & (1ULL <<  0) ?  0 :\t\\\n"
    "\t\t____ilog2_NaN()\t\t\t\\\n"
    "\t\t\t\t   ) :\t\t\\\n"
)
_OLD_SELECT = "\tfd_set in;\n\n\tFD_ZERO(&in);\n\tFD_SET(0, &in);\n\tselect(1, &in, NULL, &in, NULL);\n"
_START_KERNEL_CURED = {
    "include/linux/compiler.h": "#define prevent_tail_call_optimization()\tmb()\n",
    "init/main.c": "we're now alive */\n\tarch_call_rest_init();\n\n\tprevent_tail_call_optimization();\n}\n",
}
_RETPOLINE = "KBUILD_CFLAGS += $(RETPOLINE_CFLAGS)\n"

# By the quirk's name: trees that need it (of that release), and one after the cure.
TROUBLED: dict[str, dict[str, Tree]] = {
    "no-pie": {"v4.8": {"Makefile": "KBUILD_CFLAGS   := -Wall -std=gnu89\n"}},
    "ilog2-nan": {"v4.10": dict.fromkeys(_LOG2, _OLD_LOG2)},
    "start-secondary-canary": {"v4.11": {"include/linux/compiler.h": "#define barrier()\n", **_START_SECONDARY}},
    "start-kernel-canary": {
        "v4.11": {
            "include/linux/compiler.h": "#define barrier()\n",
            "init/main.c": "\t/* Do the rest non-__init'ed, we're now alive */\n\trest_init();\n}\n",
        }
    },
    "start-kernel-canary-arch": {
        "v5.4": {
            "include/linux/compiler.h": "#define barrier()\n",
            "init/main.c": "{\n\trest_init();\n}\n"
            "\t/* Do the rest non-__init'ed, we're now alive */\n\tarch_call_rest_init();\n}\n",
        }
    },
    "force-order-pagetable": {
        "v4.15": {"arch/x86/boot/compressed/pagetable.c": "*/\nunsigned long __force_order;\n", **_PGTABLE}
    },
    "force-order-kaslr": {
        "v4.19": {"arch/x86/boot/compressed/kaslr_64.c": "*/\nunsigned long __force_order;\n", **_PGTABLE}
    },
    "cf-protection": {
        "v4.15": {"Makefile": "", "arch/x86/Makefile": f"        {_RETPOLINE.strip()} -DRETPOLINE\n"},
        "v4.19": {"Makefile": "", "arch/x86/Makefile": _RETPOLINE},
    },
    "boot-gnu11": {
        "v4.11": {
            "arch/x86/Makefile": "REALMODE_CFLAGS	:= $(M16_CFLAGS) -g -Os -D__KERNEL__ \\\n",
            "arch/x86/boot/compressed/Makefile": "\nKBUILD_CFLAGS := -m$(BITS) -D__KERNEL__ -O2\n",
        },
        "v5.8": {
            "arch/x86/Makefile": "REALMODE_CFLAGS	:= $(M16_CFLAGS) -g -Os -DDISABLE_BRANCH_PROFILING \\\n",
            "arch/x86/boot/compressed/Makefile": "\nKBUILD_CFLAGS := -m$(BITS) -O2\n",
        },
    },
    "max-page-size": {"v4.12": {"arch/x86/Makefile": "LDFLAGS := -m elf_x86_64\n"}},
    "plt32": {"v4.15": dict.fromkeys(_RELOCATIONS, "\t\tcase R_X86_64_PC32:\n\t\t\tREL_TYPE(R_X86_64_PC32),\n")},
    "objtool-no-symbols": {
        "v5.8": {"tools/objtool/elf.c": '\tif (!symtab) {\n\t\tWARN("missing symbol table");\n\t\treturn -1;\n\t}\n'}
    },
    "make-number-sign": {"v4.15": {"scripts/Kbuild.include": _OLD_MAKE_CMD}},
    "boot-link-flip": {
        "v4.15": {
            "arch/x86/boot/compressed/Makefile": "\n$(obj)/vmlinux: $(vmlinux-objs-y) FORCE\n"
            "\t$(call if_changed,check_data_rel)\n\t$(call if_changed,ld)\n\nOBJCOPYFLAGS_vmlinux.bin :=  -S\n"
        }
    },
    "make-number-sign-tools": {
        "v4.15": {
            "tools/build/Build.include": f"{_OLD_MAKE_CMD}\n"
            "           printf '\\# cannot find fixdep (%s)\\n' $(fixdep) > $(dot-target).cmd; \\\n"
            "           printf '\\# using basic dep data\\n\\n' >> $(dot-target).cmd;           \\\n"
        }
    },
    "objtool-libelf-probe": {
        "v4.15": {"tools/objtool/Makefile": r"elfshdr := $(shell echo '\#include <libelf.h>' | $(CC) -x c -E -)"}
    },
    "dtc-yylloc": {
        "v4.19": {"scripts/dtc/dtc-lexer.l": '#include "dtc-parser.tab.h"\n\nYYLTYPE yylloc;\nextern int x;\n'}
    },
    "dtc-yylloc-shipped": {"v4.11": {"scripts/dtc/dtc-lexer.lex.c_shipped": "\nYYLTYPE yylloc;\nextern bool x;\n"}},
    "selinux-families": {
        "v4.19": {
            "security/selinux/include/classmap.h": _SELINUX_CLASSES,
            **dict.fromkeys(_GENHEADERS, "#include <ctype.h>\n#include <sys/socket.h>\n"),
        }
    },
    "libsubcmd-select": {"v4.15": {"tools/lib/subcmd/pager.c": _OLD_SELECT}},
    "tools-strlcpy": {
        "v4.19": {
            "tools/include/linux/string.h": "#if defined(__GLIBC__) && !defined(__UCLIBC__)\n"
            "extern size_t strlcpy(char *dest, const char *src, size_t size);\n#endif\n"
        }
    },
    "libsubcmd-realloc": {"v5.16": {"tools/lib/subcmd/subcmd-util.h": _OLD_REALLOC}},
}

CURED: dict[str, Tree] = {
    "no-pie": {"Makefile": "KBUILD_CFLAGS   := -Wall -std=gnu89 $(call cc-option,-fno-PIE)\n"},
    "ilog2-nan": dict.fromkeys(_LOG2, "\t\t(n) < 2 ? 0 :\t\t\t\\\n"),
    "start-secondary-canary": {
        "include/linux/compiler.h": "#define prevent_tail_call_optimization()\tmb()\n",
        "arch/x86/kernel/smpboot.c": "\tcpu_startup_entry(CPUHP_AP_ONLINE_IDLE);\n\n"
        "\tprevent_tail_call_optimization();\n}\n",
    },
    "start-kernel-canary": _START_KERNEL_CURED,
    "start-kernel-canary-arch": _START_KERNEL_CURED,
    "force-order-pagetable": {
        "arch/x86/boot/compressed/pagetable.c": "*/\nunsigned long __force_order;\n",  # v4.11: the only one
        "arch/x86/boot/compressed/pgtable_64.c": "\n",
    },
    "force-order-kaslr": {"arch/x86/boot/compressed/kaslr_64.c": "*/\n", **_PGTABLE},
    "cf-protection": {
        "Makefile": "KBUILD_CFLAGS += $(call cc-option,-fcf-protection=none)\n",
        "arch/x86/Makefile": _RETPOLINE,
    },
    "boot-gnu11": {
        "arch/x86/Makefile": "REALMODE_CFLAGS	:= -std=gnu11 -m16 -g -Os \\\n",
        "arch/x86/boot/compressed/Makefile": "\nKBUILD_CFLAGS := -m$(BITS) -O2 $(CLANG_FLAGS)\n"
        "KBUILD_CFLAGS += -std=gnu11\n",
    },
    "max-page-size": {"arch/x86/Makefile": "LDFLAGS_vmlinux += -z max-page-size=0x200000\n"},
    "plt32": dict.fromkeys(_RELOCATIONS, "\tcase R_X86_64_PC32:\n\tcase R_X86_64_PLT32:\n"),
    "objtool-no-symbols": {"tools/objtool/elf.c": "\tif (!symtab) {\n\t\t/* thunk_64.o. */\n\t\treturn 0;\n\t}\n"},
    "make-number-sign": {"scripts/Kbuild.include": _NEW_MAKE_CMD},
    "boot-link-flip": {
        "arch/x86/boot/compressed/Makefile": "$(obj)/vmlinux: $(vmlinux-objs-y) FORCE\n"
        "\t$(call if_changed,check-and-link-vmlinux)\n"
    },
    "make-number-sign-tools": {
        "tools/build/Build.include": f"{_NEW_MAKE_CMD}\nprintf '$(pound) cannot find fixdep (%s)\\n'"
    },
    "objtool-libelf-probe": {"tools/objtool/Makefile": "elfshdr := $(shell echo '$(pound)include <libelf.h>' | $(CC))"},
    "dtc-yylloc": {"scripts/dtc/dtc-lexer.l": '#include "dtc-parser.tab.h"\n\nextern bool treesource_error;\n'},
    "dtc-yylloc-shipped": {"scripts/dtc/dtc-lexer.l": "\nYYLTYPE yylloc;\n"},
    "selinux-families": {
        "security/selinux/include/classmap.h": f"#include <linux/socket.h>\n{_SELINUX_CLASSES}",
        **dict.fromkeys(_GENHEADERS, "#include <ctype.h>\n"),
    },
    "libsubcmd-select": {"tools/lib/subcmd/pager.c": "\tselect(1, &in, NULL, &exception, NULL);\n"},
    "tools-strlcpy": {
        "tools/include/linux/string.h": '#pragma GCC diagnostic ignored "-Wredundant-decls"\n'
        "extern size_t strlcpy(char *dest, const char *src, size_t size);\n"
    },
    "libsubcmd-realloc": {"tools/lib/subcmd/subcmd-util.h": '\tif (!ret)\n\t\tdie("Out of memory, realloc failed");\n'},
}
