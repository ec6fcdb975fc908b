#include <generated/compile.h>

const char linux_banner[] = "Linux version " UTS_RELEASE " (" LINUX_COMPILE_BY ") " UTS_VERSION;
