#include <linux/kernel.h>

int nr_dentry;

void dcache_init(void)
{
	/* Nothing is cached yet. */
	nr_dentry = 0;
}
