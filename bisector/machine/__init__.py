"""Image to running guest: root image, domain, console, SSH, host."""
