"""A commit whose guest cannot be talked to does not end a search: it is skipped, and the answer is found beside it."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.demo.history import History
from tests.in_vms.conftest import SHORT, Tool

pytestmark = pytest.mark.vm

CACHE, NETWORK = "drivers/md/dm-cache-target.c", "drivers/net/virtio_net.c"
# The sides are an order of magnitude apart in runs of seconds, so that other work on the host decides nothing.
DISTINCT = (
    *("--strategy", "git", "--set", "contention.max_other_cores=1000", "--set", "contention.max_steal_share=1"),
    *("--set", "contention.patience=0"),
)
# Only once the cache is full: a slow first run would not fill it.
SLOW = (
    ("#include <linux/jiffies.h>\n", "#include <linux/delay.h>\n#include <linux/jiffies.h>\n"),
    (
        "\n\tinit_per_bio_data(bio);\n\tif (unlikely(from_oblock(block)",
        "\n\tif (from_cblock(policy_residency(cache->policy)) == from_cblock(cache->cache_size))\n\t\tmsleep(20);"
        "\n\tinit_per_bio_data(bio);\n\tif (unlikely(from_oblock(block)",
    ),
)
# The guest says that it is ready, gives its signs of life, and answers nobody.
DEAF = (
    (
        "\t/* timestamp packet in software */\n",
        "\tif (dev) {\n\t\tdev_kfree_skb_any(skb);\n\t\treturn NETDEV_TX_OK;\n\t}\n"
        "\t/* timestamp packet in software */\n",
    ),
)


class Branch:
    """Commits on top of one of the demonstration's, in a clone that shares its objects."""

    def __init__(self, demo: History, path: Path) -> None:
        self.path = path
        subprocess.run(["git", "clone", "-q", "--shared", "--no-checkout", demo.repo, path], check=True)
        self.tip = demo.new

    def git(self, *words: str, stdin: str = "") -> str:
        who = {f"GIT_{who}_{what}": "test@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        environment = {**os.environ, **who, "GIT_INDEX_FILE": str(self.path / "index")}
        command = ["git", "-C", str(self.path), *words]
        return subprocess.run(
            command, env=environment, input=stdin, stdout=subprocess.PIPE, text=True, check=True
        ).stdout.rstrip("\n")

    def edited(self, tree: str, path: str, edits: tuple[tuple[str, str], ...]) -> str:
        """The tree with changes in one file, each at a text that is there once."""
        text = self.git("show", f"{tree}:{path}") + "\n"
        for old, new in edits:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        blob = self.git("hash-object", "-w", "--stdin", stdin=text)
        self.git("read-tree", tree)
        self.git("update-index", "--cacheinfo", f"100644,{blob},{path}")
        return self.git("write-tree")

    def commit(self, tree: str, subject: str) -> str:
        self.tip = self.git("commit-tree", tree, "-p", self.tip, "-m", subject)
        return self.tip


def test_a_kernel_that_loses_its_network_is_skipped(tool: Tool, demo: History, built: None, tmp_path: Path) -> None:
    branch = Branch(demo, tmp_path / "linux")
    fast = branch.git("rev-parse", f"{demo.new}^{{tree}}")
    slow = branch.edited(fast, CACHE, SLOW)
    old = branch.commit(slow, "dm cache: wait for a full cache")
    branch.commit(slow, "nothing")
    # git tries the second of four first, and takes the one that is next when it is skipped.
    deaf = branch.commit(branch.edited(slow, NETWORK, DEAF), "virtio_net: keep packets to ourselves")
    branch.commit(slow, "virtio_net: send packets again")
    new = branch.commit(fast, "dm cache: wait no more")
    run_dir = tmp_path / "run"
    ended = tool("start", old, new, "--repo", branch.path, "--run-dir", run_dir, *SHORT, *DISTINCT)
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
