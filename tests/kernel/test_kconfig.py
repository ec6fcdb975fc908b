import gzip
from contextlib import nullcontext
from pathlib import Path

import pytest

from bisector.core import resources
from bisector.core.errors import UserError
from bisector.kernel import kconfig
from bisector.kernel.kconfig import check_fragment
from tests.nested import nested

OWN = sorted(resources.kconfigs().glob("*.config"))
DEBIAN = "#\n# Automatically generated file; DO NOT EDIT.\n# Linux/x86 6.1.0-18-amd64 Kernel Configuration\n#\n"


ODD = [
    pytest.param(b"CONFIG_A=y\r\n# CONFIG_B is not set\r\n", {"CONFIG_A": "y", "CONFIG_B": "n"}, id="CRLF"),
    pytest.param(b"\xef\xbb\xbfCONFIG_A=y\n", {"CONFIG_A": "y"}, id="byte order mark"),
    pytest.param(b"CONFIG_A=y  # finer ticks\nCONFIG_HZ=1000   # the same\n",
                 {"CONFIG_A": "y", "CONFIG_HZ": "1000"}, id="comments behind values"),
    pytest.param(b'CONFIG_S="a # b" # c\nCONFIG_T="\\"#\\\\"\n',
                 {"CONFIG_S": '"a # b"', "CONFIG_T": '"\\"#\\\\"'}, id="strings end at their mark"),
    pytest.param(b"CONFIG_A=y\nCONFIG_B=m\n# CONFIG_A is not set\nCONFIG_A=m\n",
                 {"CONFIG_B": "m", "CONFIG_A": "m"}, id="the last one counts"),
    pytest.param(b"CONFIG_A=n\nCONFIG_B=\nCONFIG_C=yes\n", {"CONFIG_A": "n", "CONFIG_C": "y"}, id="n, nothing, yes"),
    pytest.param(b"CONFIG_X=0x10\nCONFIG_Y=ff\nCONFIG_Z=-1\t\n",
                 {"CONFIG_X": "0x10", "CONFIG_Y": "ff", "CONFIG_Z": "-1"}, id="numbers"),
    pytest.param(b'# f\xfcr mich\nCONFIG_A=y\nCONFIG_S="\xfc"\n', {"CONFIG_A": "y", "CONFIG_S": '"\ufffd"'},
                 id="Latin-1"),
    pytest.param(b"#CONFIG_A is not set\n#  CONFIG_B is not set\n# CONFIG_C=y\n\n\t\nCONFIG_D=y\n",
                 {"CONFIG_D": "y"}, id="comments"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "options"), ODD)
def test_odd_lines_are_taken_as_kconfig_takes_them(tmp_path: Path, content: bytes, options: dict[str, str]) -> None:
    """By conf_read_simple() and conf_set_sym_val() in scripts/kconfig/confdata.c."""
    file = tmp_path / "odd.config"
    file.write_bytes(content)
    assert list(kconfig.parse(kconfig.read_base(file)).items()) == list(options.items())
    assert list(kconfig.read_fragment(file).options.items()) == list(options.items())


@pytest.mark.parametrize(
    ("line", "why"),
    [
        *(
            (line, f"{line!r} is neither an option nor a comment")
            for line in ("CONFIG_A = y", "HZ_250=n", " CONFIG_A=y", "CONFIG_A", "</pre></body>")
        ),
        ("CONFIG_A=true", "'true' is not a value of CONFIG_A that Kconfig takes"),
        ('CONFIG_S="x', "'\"x' is not a value of CONFIG_S that Kconfig takes"),
        ("CONFIG_HZ=1000Hz", "'1000Hz' is not a value of CONFIG_HZ that Kconfig takes"),
    ],
)
def test_a_line_that_kconfig_would_pass_over_is_refused(tmp_path: Path, line: str, why: str) -> None:
    file = tmp_path / "odd.config"
    file.write_text(f"# a comment\n\nCONFIG_X=y\n{line}\nCONFIG_Y=y\n")
    for read in (kconfig.read_base, kconfig.read_fragment):
        with pytest.raises(UserError) as caught:
            read(file)
        assert caught.value.message == f"{file}:4: {why}"


@pytest.mark.parametrize("line", ["CONFIG_A=y CONFIG_B=y", "CONFIG_A=y;CONFIG_B=n", "# CONFIG_A is not set, yet"])
def test_a_line_that_kconfig_reads_in_part_is_refused(tmp_path: Path, line: str) -> None:
    file = tmp_path / "odd.config"
    file.write_text(f"CONFIG_X=y  # not CONFIG_Y=y\n{line}\n")
    for read in (kconfig.read_base, kconfig.read_fragment):
        with pytest.raises(UserError, match=f":2: Kconfig does not read all of '{line}'"):
            read(file)


def test_symbols_of_a_tree_in_any_depth(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/Kconfig.x").write_text("config DM_CACHE\n\tbool\n")
    with nested(tmp_path, 1500):
        assert kconfig.symbols(tmp_path) == {"CONFIG_DM_CACHE"}


def test_of_a_choice_the_later_layer_comes_last() -> None:
    merged = kconfig.merge(
        [{"CONFIG_KERNEL_GZIP": "y", "CONFIG_X": "y"}, {"CONFIG_KERNEL_XZ": "y"}, {"CONFIG_KERNEL_GZIP": "y"}]
    )
    assert list(merged) == ["CONFIG_X", "CONFIG_KERNEL_XZ", "CONFIG_KERNEL_GZIP"]


def test_unmet_tells_missing_weaker_and_unwanted() -> None:
    asked = {"CONFIG_A": "y", "CONFIG_B": "y", "CONFIG_C": "n", "CONFIG_D": "n", "CONFIG_E": "16", "CONFIG_S": '""'}
    obtained = {"CONFIG_A": "m", "CONFIG_C": "y", "CONFIG_E": "16"}
    assert kconfig.unmet(asked, obtained) == ("CONFIG_A=y", "CONFIG_B=y", "CONFIG_C=n")
    for value, made, is_so in (
        ("0x10", "16", True), ("16", "0x10", True), ("10", "0x10", True), ("0xFF", "0xff", True), ("ff", "0xff", True),
        ("0x10", "17", False), ("y", "0x10", False), ('"16"', "16", False),
    ):  # fmt: skip
        assert (kconfig.unmet({"CONFIG_N": value}, {"CONFIG_N": made}) == ()) is is_so, (value, made)


@pytest.mark.parametrize(
    ("text", "architecture"),
    [
        pytest.param(DEBIAN + "CONFIG_64BIT=y\nCONFIG_X86_64=y\n", None, id="x86_64"),
        pytest.param(DEBIAN.replace("x86", "x86_64") + "CONFIG_X86_64=y\n", None, id="x86_64 in the header"),
        pytest.param("CONFIG_SMP=y\n", None, id="savedefconfig"),
        pytest.param(DEBIAN + "# CONFIG_64BIT is not set\nCONFIG_X86_32=y\n", "32-bit x86", id="i386"),
        pytest.param(DEBIAN + "CONFIG_X86=y\n", "32-bit x86", id="x86 without X86_64"),
        pytest.param(DEBIAN.replace("x86", "arm64") + "CONFIG_64BIT=y\n", "arm64", id="header only"),
        pytest.param("CONFIG_ARM64=y\nCONFIG_64BIT=y\n", "arm64", id="option only"),
        pytest.param("CONFIG_ARM64_VA_BITS_48=y\nCONFIG_ARM_SMMU=y\n", "arm64", id="savedefconfig of arm64"),
        pytest.param("CONFIG_RISCV_ISA_C=y\nCONFIG_SMP=y\n", "riscv", id="savedefconfig of riscv"),
        pytest.param("CONFIG_X86_X32_ABI=y\nCONFIG_ARM_SMMU=y\n", None, id="x86 that compiles drivers of others"),
    ],
)
def test_architecture(text: str, architecture: str | None, tmp_path: Path) -> None:
    assert kconfig.foreign_architecture(text) == architecture
    (tmp_path / "config").write_text(text)
    with (
        pytest.raises(UserError, match=f"config: this .config is for {architecture}") if architecture else nullcontext()
    ):
        kconfig.read_base(tmp_path / "config")


DAMAGED = gzip.compress(b"CONFIG_SMP=y\n")[:10] + b"\xff" * 20


def test_base_may_be_gzipped(tmp_path: Path) -> None:
    base = tmp_path / "config.gz"
    base.write_bytes(gzip.compress(b"CONFIG_SMP=y\n"))
    assert kconfig.read_base(base) == "CONFIG_SMP=y\n"


@pytest.mark.parametrize("content", [b"", b"hello\n", b"\x7fELF\xff\xfe", b"\x1f\x8b\x00", DAMAGED])
def test_base_that_is_no_configuration(tmp_path: Path, content: bytes) -> None:
    base = tmp_path / "config"
    base.write_bytes(content)
    with pytest.raises(UserError, match=r"no CONFIG_ line|not a text file"):
        kconfig.read_base(base)


def test_fragment_by_name_or_path(tmp_path: Path) -> None:
    (tmp_path / "vm.config").write_text("CONFIG_A=y\n")
    *own, mine = kconfig.read_fragments(["vm", "vm.config", str(tmp_path / "vm.config")])
    assert own == [kconfig.read_fragment(resources.kconfigs() / "vm.config")] * 2
    assert mine == kconfig.Fragment({"CONFIG_A": "y"}, frozenset())


def test_marks_say_what_a_tree_need_not_know() -> None:
    text = "CONFIG_A=y\n#: optional\nCONFIG_B=y\n# why C\n# CONFIG_C is not set\n#: required\nCONFIG_D=y\nCONFIG_B=m\n"
    fragment = kconfig.Fragment.read(text)
    assert fragment.options == {"CONFIG_A": "y", "CONFIG_C": "n", "CONFIG_D": "y", "CONFIG_B": "m"}
    assert fragment.optional == {"CONFIG_C"}


def optional(*fragments: tuple[str, str]) -> set[str]:
    """Of fragments by their options, and by which of those are optional."""
    asked = (
        kconfig.Fragment(dict.fromkeys(options.split(), "y"), frozenset(some.split())) for options, some in fragments
    )
    return set(kconfig.optional(asked))


def test_a_tree_may_lack_what_no_fragment_requires() -> None:
    assert optional(("A B", "A B"), ("C", "C")) == {"A", "B", "C"}
    assert optional(("A B", "A B"), ("B C", "")) == {"A"}
    assert optional() == set()


def test_what_guest_and_stack_stand_on_is_missed_whatever_a_tree_knows() -> None:
    fragments = dict(zip(OWN, kconfig.read_fragments([path.stem for path in OWN]), strict=True))
    needed = [one for path, one in fragments.items() if path.stem.startswith(("vm", "storage-"))]
    asked = {option for fragment in needed for option in fragment.options}
    assert {"CONFIG_DM_CACHE_SMQ", "CONFIG_BCACHE", "CONFIG_VIRTIO_BLK", "CONFIG_EXT4_FS"} <= asked
    # Each of these has a fallback, or is older or newer than some trees.
    may_lack = """
        BLK_MQ_VIRTIO BLOCK_LEGACY_AUTOLOAD CRYPTO_AES_NI_INTEL CRYPTO_CAMELLIA_AESNI_AVX2_X86_64 CRYPTO_CHACHA20_X86_64
        CRYPTO_ESSIV CRYPTO_NHPOLY1305_AVX2 CRYPTO_SERPENT_AVX2_X86_64 CRYPTO_TWOFISH_AVX_X86_64 DM_CACHE_CLEANER
        DM_CACHE_MQ IO_URING PSI RAID6_PQ_BENCHMARK RANDOM_TRUST_CPU RSEQ SOFTLOCKUP_DETECTOR VIRTIO_MENU
    """
    assert asked & kconfig.optional(fragments.values()) == {f"CONFIG_{name}" for name in may_lack.split()}
    assert "CONFIG_BASE_FULL" in kconfig.optional(fragments.values())


@pytest.mark.parametrize(("typed", "meant"), [("storage-lvmcach", "storage-lvmcache"), ("vmm.config", "vm")])
def test_missing_fragment_names_those_there_are(typed: str, meant: str) -> None:
    with pytest.raises(UserError, match=typed) as caught:
        kconfig.read_fragments([typed])
    assert f"did you mean {meant}?" in caught.value.hint


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_own_fragments_say_each_option_once(path: Path) -> None:
    lines = [line for line in path.read_text().splitlines() if "CONFIG_" in line]
    assert len(kconfig.parse(path.read_text())) == len(lines)


OF_LAYERS = ("storage-raid1", "storage-raid5", "storage-crypt", "storage-xfs", "storage-btrfs")


def test_no_two_of_the_fragments_that_go_together_contradict_each_other() -> None:
    """A later one would win without a word; below them only what fixes a distribution's configuration may be undone."""
    names = ("tiny", "vm", "storage-lvmcache", "storage-bcache", *OF_LAYERS, "debug")
    values: dict[str, set[str]] = {}
    for name in names:
        for option, value in kconfig.parse(resources.fragment(name).read_text()).items():
            values.setdefault(option, set()).add(value)
    assert {option for option, found in values.items() if len(found) > 1} == set()


@pytest.mark.parametrize(
    ("unmet", "without", "said"),
    [
        ((), "CONFIG_HZ=100\n", ""),
        (("CONFIG_OTHER=y",), "CONFIG_HZ=100\n", ""),  # the settings' own asked for that
        (("CONFIG_OTHER=y", "CONFIG_G=7"), "", "hz.config asks for CONFIG_G=7, which Kconfig does not set"),
        ((), "# a comment\n{config}", "hz.config changes nothing: without it {first_six} … is so, too"),
    ],
)
def test_a_fragment_of_a_subjects_own_has_to_be_obtained_and_to_change_something(
    tmp_path: Path, unmet: tuple[str, ...], without: str, said: str
) -> None:
    asked = [f"CONFIG_{name}=7" for name in "ABCDEFG"]
    fragment, before, config = (tmp_path / name for name in ("hz.config", "without", "with"))
    for path in (fragment, config):
        path.write_text("\n".join(asked))
    before.write_text(without.format(config="\n".join(asked)))
    if not said:
        check_fragment(fragment, unmet, config, before)
        return
    with pytest.raises(UserError) as caught:
        check_fragment(fragment, unmet, config, before)
    assert caught.value.message == said.format(first_six=", ".join(asked[:6]))
    assert ("what CONFIG_G depends on" in caught.value.hint) is bool(unmet)
