#ifndef _LINUX_KERNEL_H
#define _LINUX_KERNEL_H

#define __stringify_1(x) #x
#define __stringify(x) __stringify_1(x)

void dcache_init(void);
void dm_init(void);

#endif
