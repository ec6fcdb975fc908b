cmd_/build/tools/objtool/subcmd-config.o := gcc -Wp,-MD,/build/tools/objtool/.subcmd-config.o.d -Wp,-MT,/build/tools/objtool/subcmd-config.o -ggdb3 -Wall -Wextra -std=gnu99 -fPIC -O6 -Werror -D_LARGEFILE64_SOURCE -D_FILE_OFFSET_BITS=64 -D_GNU_SOURCE -I/src/linux/tools/include/ -Wbad-function-cast -Wdeclaration-after-statement -Wformat-security -Wformat-y2k -Winit-self -Wmissing-declarations -Wmissing-prototypes -Wnested-externs -Wno-system-headers -Wold-style-definition -Wpacked -Wredundant-decls -Wstrict-prototypes -Wswitch-default -Wswitch-enum -Wundef -Wwrite-strings -Wformat -Wno-type-limits -Wstrict-aliasing=3 -Wshadow -D"BUILD_STR(s)=$(pound)s" -c -o /build/tools/objtool/subcmd-config.o subcmd-config.c

source_/build/tools/objtool/subcmd-config.o := subcmd-config.c

deps_/build/tools/objtool/subcmd-config.o := \
  /usr/include/stdc-predef.h \
  subcmd-config.h \

/build/tools/objtool/subcmd-config.o: $(deps_/build/tools/objtool/subcmd-config.o)

$(deps_/build/tools/objtool/subcmd-config.o):
