#!/bin/sh
# behind-ccache.sh COMPILER ARGUMENT...: compile through ccache in its depend mode, where that is safe.
#
# In depend mode a file that is not in the cache costs a tenth more than the compiler alone; without it two fifths, for
# preprocessing everything twice (30 files of v6.1: 10 and 13 s of CPU, 9 without ccache). But it knows only the files
# that the compiler's dependency file names, and what the assembler reads for itself (.incbin) is not in there:
# arch/x86/boot/compressed/piggy.S has the whole compressed kernel that way, and would be another commit's. So
# assembler sources, and C sources that say .incbin (kernel/configs.c, kernel/kheaders.c), are compiled by the compiler
# itself. Kbuild names the source last.
for source; do :; done
case $source in
*.c)
	grep -q incbin "$source"
	if [ $? -eq 1 ]; then
		export CCACHE_DEPEND=1
		exec ccache "$@"
	fi
	;;
esac
exec "$@"
