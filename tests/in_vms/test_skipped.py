"""A commit whose guest cannot be talked to does not end a search: it is skipped, and the answer is found beside it."""

from pathlib import Path

import pytest

from scenarios.demo.history import History
from tests.in_vms.conftest import DISTURBED, SHORT, Branch, Tool

pytestmark = [pytest.mark.vm, pytest.mark.rare]

NETWORK = "drivers/net/virtio_net.c"
# The guest says that it is ready, gives its signs of life, and answers nobody.
DEAF = (
    (
        "\t/* timestamp packet in software */\n",
        "\tif (dev) {\n\t\tdev_kfree_skb_any(skb);\n\t\treturn NETDEV_TX_OK;\n\t}\n"
        "\t/* timestamp packet in software */\n",
    ),
)


def test_a_kernel_that_loses_its_network_is_skipped(tool: Tool, demo: History, tmp_path: Path) -> None:
    branch = Branch(demo, tmp_path / "linux")
    fast, slow = branch.fast, branch.slow()
    old = branch.commit(slow, "dm cache: wait for a full cache")
    branch.commit(slow, "nothing")
    # git tries the second of four first, and takes the one that is next when it is skipped.
    deaf = branch.commit(branch.edited(slow, NETWORK, DEAF), "virtio_net: keep packets to ourselves")
    branch.commit(slow, "virtio_net: send packets again")
    new = branch.commit(fast, "dm cache: wait no more")
    run_dir = tmp_path / "run"
    ended = tool(
        "start", old, new, "--repo", branch.path, "--run-dir", run_dir, *SHORT, *DISTURBED, "--strategy", "git"
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    status = tool.status(run_dir)
    assert (status["state"], status["first_fixed"]["sha"]) == ("found", new)
    (skipped,) = (trial for trial in status["trials"] if trial["verdict"] == "skip")
    assert (skipped["sha"], skipped["stage"]) == (deaf, "boot")
    assert skipped["reason"].startswith("never reached SSH: SSH to the guest")
    (console,) = (one for one in skipped["artifacts"] if one["name"] == "console.log")
    assert "bisector-guest: ready" in (run_dir / console["path"]).read_text()
    assert [fault["sha"] for fault in status["infra_faults"]] == [deaf] * 3
    (control,) = status["controls"]
    assert (control["sha"], control["stage"], control["trials"], control["failed"]) == (new, "boot", [skipped["n"]], "")
