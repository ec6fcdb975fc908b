/*
 * What is run under KVM, and without it, before there is a kernel: probes.py has it as bytes, and a test assembles it.
 *
 * QEMU takes anything for a kernel of the oldest boot protocol (Documentation/arch/x86/boot.rst): it jumps to the second
 * sector, in real mode. This goes on to long mode (Intel's manual, volume 3, 10.8.5), since real mode may be emulated
 * where all else is run by the CPU, turns around fifty million times, and says on the serial port what a kernel says
 * first. An Intel Xeon takes 0.015 s for the turns, and QEMU's emulation on it 0.1 s.
 */
	.code16
	.set LOADED, 0x90200		/* where QEMU has loaded it: the segment is 0x9020 */
start:
	cli
	cld
	mov	%cs, %ax
	mov	%ax, %ds
	xor	%ax, %ax		/* three tables at 0x1000 map the first 2 MiB to themselves */
	mov	%ax, %es
	mov	$0x1000, %di
	mov	$0x1800, %cx
	rep stosw
	movw	$0x2003, %es:0x1000
	movw	$0x3003, %es:0x2000
	movw	$0x0083, %es:0x3000
	lgdtl	gdt_pointer - start
	mov	%cr4, %eax
	or	$0x20, %eax		/* PAE */
	mov	%eax, %cr4
	mov	$0x1000, %eax
	mov	%eax, %cr3
	mov	$0xc0000080, %ecx	/* EFER: LME */
	rdmsr
	or	$0x100, %eax
	wrmsr
	mov	%cr0, %eax
	or	$0x80000001, %eax	/* PG, PE */
	mov	%eax, %cr0
	ljmpl	$8, $(LOADED + long_mode - start)

	.code64
long_mode:
	mov	$50000000, %ecx
turn:	dec	%ecx
	jnz	turn
	mov	$0x3f8, %edx
	lea	text(%rip), %rsi
next:	lodsb
	test	%al, %al
	jz	halt
	out	%al, %dx
	jmp	next
halt:	hlt
	jmp	halt
text:	.asciz	"Linux version 0\n"
	.balign	8
gdt:	.quad	0
	.quad	0x00209a0000000000	/* code, 64 bits */
gdt_pointer:
	.word	15
	.long	LOADED + gdt - start
