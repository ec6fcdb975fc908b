"""Files of a result on their way: whole, bounded, and only what a trial leaves."""

import gzip
import hashlib
import io
import random
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from bisector.core.errors import InfraError
from bisector.fleet import spec as archives
from bisector.fleet.spec import DamagedArchive, ResultArchive


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> ResultArchive:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as made:
        for member, content in members:
            member.size = len(content)
            made.addfile(member, io.BytesIO(content))
    content = buffer.getvalue()
    return ResultArchive(content, hashlib.sha256(content).hexdigest())


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "there" / "trials" / "0001-abc" / "full").mkdir(parents=True)
    (tmp_path / "there" / "trials" / "0001-abc" / "console.log").write_text("[    0.000000] Linux\n")
    (tmp_path / "there" / "trials" / "0001-abc" / "full" / "fio.json").write_text("{}")
    (tmp_path / "there" / "trials" / "0001-abc" / "link").symlink_to("/etc/passwd")
    return tmp_path / "there"


def found(run_dir: Path) -> dict[str, str]:
    return {path.relative_to(run_dir).as_posix(): path.read_text() for path in run_dir.rglob("*") if path.is_file()}


def test_regular_files_arrive_as_they_were(source: Path, tmp_path: Path) -> None:
    sent = ResultArchive.of(source)
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    for _ in range(2):  # after a kill, say
        sent.unpack(run_dir)
        assert found(run_dir) == {
            "trials/0001-abc/console.log": "[    0.000000] Linux\n",
            "trials/0001-abc/full/fio.json": "{}",
        }


@pytest.mark.parametrize(
    "bad",
    [
        member("../outside"),
        member("/etc/cron.d/x"),
        member("trials/../../outside"),
        member("trials/0001/../../x"),
        member("bisect.db"),
        member("inputs/base.config"),
        member("trials"),
        member("trials//x"),
        member("trials/0001-abc/link", tarfile.SYMTYPE, "/etc/passwd"),
        member("trials/0001-abc/hard", tarfile.LNKTYPE, "trials/0001-abc/console.log"),
        member("trials/0001-abc/fifo", tarfile.FIFOTYPE),
        member("trials/0001-abc/disk", tarfile.BLKTYPE),
        member("/".join(["trials", *"x" * 40])),
    ],
    ids=lambda bad: bad.name[:30],
)
def test_what_no_trial_leaves_is_refused_and_nothing_arrives(bad: tarfile.TarInfo, tmp_path: Path) -> None:
    sent = archive((member("trials/0001-abc/console.log"), b"text"), (bad, b""))
    with pytest.raises(DamagedArchive):
        sent.unpack(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_file_of_two_contents_is_refused(tmp_path: Path) -> None:
    one = member("trials/0001-abc/console.log")
    with pytest.raises(DamagedArchive):
        archive((one, b"text"), (one, b"other")).unpack(tmp_path)


def test_a_link_in_the_run_directory_is_not_followed(source: Path, tmp_path: Path) -> None:
    sent, run_dir, elsewhere = ResultArchive.of(source), tmp_path / "run", tmp_path / "elsewhere"
    run_dir.mkdir()
    elsewhere.mkdir()
    (run_dir / "trials").symlink_to(elsewhere)
    with pytest.raises(InfraError):
        sent.unpack(run_dir)
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize(
    "content", [b"", b"no archive", gzip.compress(b"no archive" * 100)], ids=["empty", "text", "packed text"]
)
def test_what_is_no_archive_is_trouble_of_the_host(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(DamagedArchive):
        ResultArchive(content, hashlib.sha256(content).hexdigest()).unpack(tmp_path)


def test_what_was_changed_on_the_way_is_refused(source: Path, tmp_path: Path) -> None:
    sent = ResultArchive.of(source)
    with pytest.raises(DamagedArchive, match="digest"):
        replace(sent, content=sent.content[:-9] + b"x" + sent.content[-8:]).unpack(tmp_path)


def test_too_much_is_refused_where_it_arrives(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = ResultArchive.of(source)
    for bound in ("_MOST_ARCHIVE_BYTES", "_MOST_FILES"):
        with monkeypatch.context() as patch:
            patch.setattr(archives, bound, 1)
            with pytest.raises(DamagedArchive, match="more files"):
                sent.unpack(tmp_path)


def test_the_largest_files_stay_where_there_is_no_room_for_all(source: Path, tmp_path: Path) -> None:
    """Else a trial with large logs would fail on each host, and be measured for hours each time."""
    (source / "trials" / "0001-abc" / "large.log").write_bytes(random.Random(1).randbytes(100_000))
    sent = ResultArchive.of(source, most_bytes=50_000)
    assert sent.left_out == ("trials/0001-abc/large.log",)
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    sent.unpack(run_dir)
    assert set(found(run_dir)) == {"trials/0001-abc/console.log", "trials/0001-abc/full/fio.json"}
