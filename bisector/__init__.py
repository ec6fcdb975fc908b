"""Find the first commit that changed a measured figure of the Linux kernel."""
