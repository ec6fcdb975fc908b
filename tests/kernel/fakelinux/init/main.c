#include <linux/kernel.h>

void start_kernel(void)
{
	dcache_init();
#ifdef CONFIG_BLK_DEV_DM
	dm_init();
#endif
	for (;;)
		;
}
