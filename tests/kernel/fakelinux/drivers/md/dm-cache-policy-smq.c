#include <linux/kernel.h>

/* What a stand-in guest "measures" when it boots this kernel. */
#define IOPS_MEAN 1002

const char smq_figure[] = "fakelinux iops_mean=" __stringify(IOPS_MEAN);
