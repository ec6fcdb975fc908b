cmd_arch/x86/boot/copy.o := gcc -Wp,-MMD,arch/x86/boot/.copy.o.d -nostdinc -I/src/linux/arch/x86/include -I./arch/x86/include/generated -I/src/linux/include -I./include -I/src/linux/arch/x86/include/uapi -I./arch/x86/include/generated/uapi -I/src/linux/include/uapi -I./include/generated/uapi -include /src/linux/include/linux/compiler-version.h -include /src/linux/include/linux/kconfig.h -D__KERNEL__ -fmacro-prefix-map=/src/linux/= -std=gnu11 -m16 -g -Os -DDISABLE_BRANCH_PROFILING -D__DISABLE_EXPORTS -Wall -Wstrict-prototypes -march=i386 -mregparm=3 -fno-strict-aliasing -fomit-frame-pointer -fno-pic -mno-mmx -mno-sse -fcf-protection=none -ffreestanding -fno-stack-protector -Wno-address-of-packed-member -mpreferred-stack-boundary=2 -D_SETUP -D__ASSEMBLY__ -DSVGA_MODE=NORMAL_VGA -I /src/linux/arch/x86/boot -I ./arch/x86/boot    -c -o arch/x86/boot/copy.o /src/linux/arch/x86/boot/copy.S 

source_arch/x86/boot/copy.o := /src/linux/arch/x86/boot/copy.S

deps_arch/x86/boot/copy.o := \
  /src/linux/include/linux/compiler-version.h \
    $(wildcard include/config/CC_VERSION_TEXT) \
  /src/linux/include/linux/kconfig.h \
    $(wildcard include/config/CPU_BIG_ENDIAN) \
    $(wildcard include/config/BOOGER) \
    $(wildcard include/config/FOO) \
  /src/linux/include/linux/linkage.h \
    $(wildcard include/config/ARCH_USE_SYM_ANNOTATIONS) \
  /src/linux/include/linux/compiler_types.h \
    $(wildcard include/config/DEBUG_INFO_BTF) \
    $(wildcard include/config/PAHOLE_HAS_BTF_TAG) \
    $(wildcard include/config/HAVE_ARCH_COMPILER_H) \
    $(wildcard include/config/CC_HAS_ASM_INLINE) \
  /src/linux/include/linux/stringify.h \
  /src/linux/include/linux/export.h \
    $(wildcard include/config/MODVERSIONS) \
    $(wildcard include/config/HAVE_ARCH_PREL32_RELOCATIONS) \
    $(wildcard include/config/MODULES) \
    $(wildcard include/config/TRIM_UNUSED_KSYMS) \
  /src/linux/arch/x86/include/asm/linkage.h \
    $(wildcard include/config/64BIT) \
    $(wildcard include/config/X86_32) \
    $(wildcard include/config/X86_64) \
    $(wildcard include/config/X86_ALIGNMENT_16) \
    $(wildcard include/config/RETHUNK) \
    $(wildcard include/config/RETPOLINE) \
    $(wildcard include/config/SLS) \
  /src/linux/arch/x86/include/asm/ibt.h \
    $(wildcard include/config/X86_KERNEL_IBT) \
  /src/linux/include/linux/types.h \
    $(wildcard include/config/HAVE_UID16) \
    $(wildcard include/config/UID16) \
    $(wildcard include/config/ARCH_DMA_ADDR_T_64BIT) \
    $(wildcard include/config/PHYS_ADDR_T_64BIT) \
    $(wildcard include/config/ARCH_32BIT_USTAT_F_TINODE) \
  /src/linux/include/uapi/linux/types.h \
  arch/x86/include/generated/uapi/asm/types.h \
  /src/linux/include/uapi/asm-generic/types.h \
  /src/linux/include/asm-generic/int-ll64.h \
  /src/linux/include/uapi/asm-generic/int-ll64.h \
  /src/linux/arch/x86/include/uapi/asm/bitsperlong.h \
  /src/linux/include/asm-generic/bitsperlong.h \
  /src/linux/include/uapi/asm-generic/bitsperlong.h \

arch/x86/boot/copy.o: $(deps_arch/x86/boot/copy.o)

$(deps_arch/x86/boot/copy.o):
