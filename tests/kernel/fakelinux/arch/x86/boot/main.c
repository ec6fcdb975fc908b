#include <linux/kernel.h>

/* Sets the machine up before vmlinux runs. */
int boot_heap_pages = 4;
