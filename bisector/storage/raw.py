"""A stack without a file system: the workload is given the uppermost block device itself."""

from bisector.storage.layer import Layer, LayerPlan, Site


class Raw(Layer):
    """The top of a stack whose workload reads and writes the block device below."""

    name = "raw"
    is_file_system = True
    has_files = False
    suspects = ("block", "drivers/block")
    tools = ("blockdev",)

    def make(self, site: Site) -> LayerPlan:
        """Return the device below; there is nothing to make."""
        (device,) = site.below
        return LayerPlan(device.path, ())
