"""Turn a root image into a running guest: image, domain, console, SSH."""

import os

# By default the embedded driver logs to this process's standard error; libvirt reads this variable once, when loaded.
os.environ.setdefault("LIBVIRT_LOG_OUTPUTS", "4:file:/dev/null")
