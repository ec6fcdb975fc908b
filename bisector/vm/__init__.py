"""Image to running guest: root image, domain, console, SSH, host."""

import os

# The embedded driver logs to the standard error of this process otherwise; libvirt reads this once, when it is loaded.
os.environ.setdefault("LIBVIRT_LOG_OUTPUTS", "4:file:/dev/null")
