"""No file system: the workload is given the uppermost block device itself."""

from bisector.storage.layer import Layer, Made, Site


class Raw(Layer):
    """The last word of a stack whose workload reads and writes a block device."""

    name = "raw"
    is_file_system = True
    has_files = False
    suspects = ("block", "drivers/block")
    tools = ("blockdev",)

    def make(self, site: Site) -> Made:
        """Nothing is made."""
        (device,) = site.below
        return Made(device.path, ())
