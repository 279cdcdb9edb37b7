"""A folder and a tar give the same files, and every way to smuggle something in is refused by its name."""

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from export.artifact import limits, streams
from export.artifact.archive import tar_digest, write_archive
from export.artifact.check import check_artifact, judge
from export.artifact.layout import ALL_FILES, ArtifactError
from export.artifact.load import open_artifact, open_model
from export.artifact.source import open_source
from pipeline.run import ROOT
from tests.export.artifact.forge import TOP, member, members_of, write_tar


@pytest.fixture
def contents(artifact: Path) -> dict[str, bytes]:
    return {name: (artifact / name).read_bytes() for name in ALL_FILES}


@pytest.fixture
def archive(tmp_path: Path, contents: dict[str, bytes]) -> Path:
    write_archive(tmp_path / "small.tar.gz", TOP, contents)
    return tmp_path / "small.tar.gz"


def problems_of(path: Path) -> list[str]:
    findings = judge(path).findings
    assert {(finding.check, finding.kind) for finding in findings} <= {("names", "structural")}
    return [finding.problem for finding in findings]


def test_good_tar_is_accepted_compressed_or_not(archive: Path, tmp_path: Path) -> None:
    assert check_artifact(archive)["name"] == "small"
    plain = tmp_path / "plain.tar"
    plain.write_bytes(gzip.decompress(archive.read_bytes()))
    # Level 1 finds other matches, as another zlib does.
    (tmp_path / "other.tar.gz").write_bytes(gzip.compress(plain.read_bytes(), 1))
    assert (tmp_path / "other.tar.gz").read_bytes() != archive.read_bytes()
    assert open_source(plain).problems == open_source(tmp_path / "other.tar.gz").problems == ()


def test_tar_answers_as_its_folder_does(archive: Path, artifact: Path) -> None:
    answers = [open_model(open_artifact(path), "onnxruntime").predict(["MIT"]) for path in (archive, artifact)]
    assert answers[0] == answers[1]


def test_tar_depends_on_nothing_but_the_files(archive: Path, contents: dict[str, bytes], tmp_path: Path) -> None:
    again = tmp_path / "another name"
    write_archive(again, TOP, dict(reversed(contents.items())))
    assert again.read_bytes() == archive.read_bytes()
    # The header of gzip: no name, no time, no system.
    assert archive.read_bytes()[:10] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
    with tarfile.open(archive) as tar:
        members = tar.getmembers()
    assert [m.name for m in members] == [TOP, *(f"{TOP}/{name}" for name in sorted(ALL_FILES))]
    assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members} == {(0, 0, "", "", 315532800)}
    assert {m.mode for m in members[1:]} == {0o644}


def test_longest_names_go_into_a_tar(tmp_path: Path, contents: dict[str, bytes]) -> None:
    top = f"{'n' * 100}-{'v' * 100}"
    write_archive(tmp_path / "long.tar.gz", top, contents)
    opened = open_source(tmp_path / "long.tar.gz")
    assert (opened.problems, opened.top) == ((), top)
    assert opened.read("tokenizer_config.json") == contents["tokenizer_config.json"]


@pytest.mark.skipif(not shutil.which("tar"), reason="tar is not on this system")
def test_other_tools_unpack_the_tar(archive: Path, tmp_path: Path, contents: dict[str, bytes]) -> None:
    done = subprocess.run(["tar", "-xzf", archive, "-C", tmp_path], capture_output=True, check=True)
    assert done.stderr == b""
    assert {file.name: file.read_bytes() for file in (tmp_path / TOP).iterdir()} == contents


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (member("../escaped", b"x"), "../escaped leads out of the folder that it is unpacked to."),
        (member(f"{TOP}/../../escaped", b"x"), f"{TOP}/../../escaped leads out of the folder"),
        (member("/etc/escaped", b"x"), "/etc/escaped leads out of the folder"),
        (member(f"{TOP}\\..\\escaped", b"x"), "escaped leads out of the folder"),
        (
            member(f"{TOP}/model.onnx.data", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
            f"{TOP}/model.onnx.data is a symbolic link to /etc/passwd; an artifact holds files only.",
        ),
        (
            member(f"{TOP}/hard", type=tarfile.LNKTYPE, linkname=f"{TOP}/model.pt"),
            f"{TOP}/hard is a hard link to {TOP}/model.pt; an artifact holds files only.",
        ),
        (member(f"{TOP}/null", type=tarfile.CHRTYPE, devmajor=1, devminor=3), "null is a device; an artifact holds"),
        (member(f"{TOP}/disk", type=tarfile.BLKTYPE), "disk is a device; an artifact holds"),
        (member(f"{TOP}/pipe", type=tarfile.FIFOTYPE), "pipe is a pipe; an artifact holds"),
        (member(f"{TOP}/odd", type=b"Z"), "odd is a member of the kind b'Z'; an artifact holds"),
        (member(f"{TOP}/sub", type=tarfile.DIRTYPE), f"{TOP}/sub is a folder, or lies in another folder"),
        (member(f"{TOP}/sub/file", b"x"), f"{TOP}/sub/file is a folder, or lies in another folder"),
        (member("elsewhere/model.pt", b"x"), "elsewhere/model.pt is a folder, or lies in another folder"),
        (member("loose", b"x"), "loose is a folder, or lies in another folder"),
        (member(f"{TOP}/model.pt", b"x"), "model.pt stands in the tar twice."),
        (member(f"{TOP}/model.onnx.data", b"x"), "model.onnx.data does not belong to an artifact."),
        (member(f"{TOP}/\x1b[31mred", b"x"), "\\x1b[31mred does not belong"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_member_that_no_artifact_has_is_refused(
    artifact: Path, tmp_path: Path, extra: tuple[tarfile.TarInfo, bytes], said: str
) -> None:
    for place, members in (("last", [*members_of(artifact), extra]), ("first", [extra, *members_of(artifact)])):
        before = sorted(tmp_path.parent.iterdir())
        problems = judge(write_tar(tmp_path / f"{place}.tar.gz", members)).findings
        if extra[0].name not in ("elsewhere/model.pt", "loose") or place == "last":
            assert any(said in finding.problem for finding in problems), problems
        assert problems
        assert sorted(tmp_path.parent.iterdir()) == before
    # Nothing was unpacked.
    assert {path.name for path in tmp_path.iterdir()} == {"first.tar.gz", "last.tar.gz"}


def test_missing_member_is_refused(artifact: Path, tmp_path: Path) -> None:
    members = [entry for entry in members_of(artifact) if not entry[0].name.endswith("/goldens.json")]
    assert problems_of(write_tar(tmp_path / "a.tar.gz", members)) == ["goldens.json is missing."]


@pytest.mark.parametrize(
    "change",
    [
        lambda members: members,
        lambda members: members[::-1],
        lambda members: [(info, data) for info, data in members if not setattr(info, "mode", 0o4755)],
        lambda members: [(info, data) for info, data in members if not setattr(info, "uid", 1000)],
        lambda members: [(info, data) for info, data in members if not setattr(info, "mtime", 10**9)],
    ],
    ids=["no folder", "order", "mode", "owner", "time"],
)
def test_tar_that_ferry_would_not_write_is_refused(artifact: Path, tmp_path: Path, change) -> None:
    (problem,) = problems_of(write_tar(tmp_path / "a.tar.gz", change(members_of(artifact))))
    assert problem.startswith("it is not the tar that ferry package writes of these files")


@pytest.mark.parametrize("hidden", [b"x" * 512, b"\0" * 10240])
def test_bytes_after_the_end_are_refused(archive: Path, tmp_path: Path, hidden: bytes) -> None:
    (tmp_path / "more.tar").write_bytes(gzip.decompress(archive.read_bytes()) + hidden)
    (problem,) = problems_of(tmp_path / "more.tar")
    assert problem.startswith("it is not the tar that ferry package writes of these files")


def test_tar_in_another_folder_than_its_name_says_is_refused(tmp_path: Path, contents: dict[str, bytes]) -> None:
    write_archive(tmp_path / "a.tar.gz", "small-2.0.0", contents)
    assert problems_of(tmp_path / "a.tar.gz") == ["the tar holds the folder 'small-2.0.0'; wanted 'small-1.0.0'."]


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.9, 0.9999])
@pytest.mark.parametrize("packed", [True, False])
def test_tar_that_is_cut_off_is_refused(archive: Path, tmp_path: Path, keep: float, packed: bool) -> None:
    whole = archive.read_bytes() if packed else gzip.decompress(archive.read_bytes())
    (tmp_path / "cut").write_bytes(whole[: int(keep * len(whole))])
    with pytest.raises(ArtifactError):
        check_artifact(tmp_path / "cut")


def test_flipped_bytes_of_a_tar_are_refused(archive: Path, tmp_path: Path) -> None:
    whole = archive.read_bytes()
    # The first ten bytes are gzip's header, of which some say nothing.
    for position in (10, 1000, len(whole) // 2, len(whole) - 5):
        changed = bytearray(whole)
        changed[position] ^= 0x10
        (tmp_path / "flipped").write_bytes(changed)
        with pytest.raises(ArtifactError, match="or it is damaged"):
            check_artifact(tmp_path / "flipped")


def test_what_is_no_tar_is_refused(tmp_path: Path) -> None:
    for name, data in (("text", b"hello"), ("empty", b""), ("zip", b"PK\x03\x04" + b"x" * 2000)):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ArtifactError, match="is not a folder and not a tar, or it is damaged"):
            check_artifact(tmp_path / name)


def test_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """300 MB of zeros in 300 kB, inside a member, in a header, after the end: no more than the limit is ever read."""
    zeros = b"\0" * (100 * 2**20)
    monkeypatch.setattr(limits, "MAX_OTHER_SIZE", 2**20)
    limit = 4 * 2**20
    said = {
        "a model": ([member(f"{TOP}/model.pt", zeros)], "model.pt has more than the 4,194,304 bytes"),
        "a text": ([member(f"{TOP}/README.md", zeros[: 2 * 2**20])], "README.md has more than the 1,048,576 bytes"),
        "others": ([member(f"{TOP}/a{n}", zeros[: 2**20]) for n in range(6)], "it holds more than 4,194,304 bytes"),
        "a header": ([member(f"{TOP}/{'x' * (8 * 2**20)}", b"")], "././@PaxHeader is a pax header"),
    }
    for members, problem in said.values():
        opened = open_source(write_tar(tmp_path / "bomb.tar.gz", members), limit)
        assert any(text.startswith(problem) for text in opened.problems), opened.problems
    buffer = io.BytesIO()
    tarfile.open(fileobj=buffer, mode="w").close()
    (tmp_path / "tail.tar.gz").write_bytes(gzip.compress(buffer.getvalue() + zeros))
    assert open_source(tmp_path / "tail.tar.gz", limit).problems[0].startswith("it holds more than 4,194,304 bytes")
    many = [member(f"{TOP}/{n}") for n in range(200)]
    assert "it has more than 100 members" in open_source(write_tar(tmp_path / "many.tar.gz", many)).problems[0]


def test_memory_stays_below_what_a_bomb_asks_for(tmp_path: Path) -> None:
    """In a process that may have 200 MB beside what Python itself takes, a gigabyte of zeros is refused."""
    with (
        (tmp_path / "bomb.tar.gz").open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", compresslevel=1, fileobj=raw) as bomb,
    ):
        info = tarfile.TarInfo(f"{TOP}/model.pt")
        info.size = 2**30
        bomb.write(info.tobuf())
        for _ in range(2**10):
            bomb.write(b"\0" * 2**20)
    program = (
        "import resource, sys; from pathlib import Path; from export.artifact.source import open_source\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "print(open_source(Path(sys.argv[1]), 50 * 2**20).problems)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "bomb.tar.gz")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "model.pt has more than the 52,428,800 bytes that such a file may have" in done.stdout
    assert done.stdout.endswith("True\n")


def header(type: bytes, data: bytes, size: int | None = None) -> bytes:
    """A header of a kind that stands before a member, and its data."""
    info, _ = member("before", type=type)
    info.size = len(data) if size is None else size
    return info.tobuf(tarfile.GNU_FORMAT) + data + b"\0" * (-len(data) % tarfile.BLOCKSIZE)


EXTENSIONS = {
    "a GNU header for a long name": header(tarfile.GNUTYPE_LONGNAME, b"aaaa\0"),
    "a GNU header for a long link": header(tarfile.GNUTYPE_LONGLINK, b"aaaa\0"),
    "a pax header for all members": header(tarfile.XGLTYPE, b"12 path=aaa\n"),
    "a pax header of Solaris": header(tarfile.SOLARIS_XHDTYPE, b"12 path=aaa\n"),
    # The byte that says that an extension follows; its end, and the tar's, is cut off.
    "a sparse file": header(tarfile.GNUTYPE_SPARSE, b"", 512)[:482] + b"\1" + b"\0" * 29,
}


@pytest.mark.parametrize("kind", EXTENSIONS)
@pytest.mark.parametrize("times", [1, 3000])
def test_header_before_a_member_is_refused_alone_and_in_a_chain(
    archive: Path, tmp_path: Path, kind: str, times: int
) -> None:
    block = bytearray(EXTENSIONS[kind])
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block[:512])
    (tmp_path / "chain.tar").write_bytes(bytes(block) * times + gzip.decompress(archive.read_bytes()))
    assert problems_of(tmp_path / "chain.tar")[0] == f"before is {kind}; an artifact holds files only."
    (tmp_path / "alone.tar").write_bytes(block)
    assert open_source(tmp_path / "alone.tar").problems == (f"before is {kind}; an artifact holds files only.",)


@pytest.mark.parametrize(
    ("before", "name"),
    [
        (header(tarfile.XHDTYPE, b"12 path=aaa\n") * 3000, "aaa"),
        (header(tarfile.XHDTYPE, b"10 size=5\n"), "before"),
        (header(tarfile.XHDTYPE, b"12 path=aaa\n10 size=5\n"), "before"),
        (header(tarfile.XHDTYPE, b"13 path=aaa\n"), "before"),
        (header(tarfile.XHDTYPE, b"1026 path=" + b"a" * 1015 + b"\n"), "before"),
        (header(tarfile.XHDTYPE, b""), "before"),
    ],
    ids=["chain", "size", "two records", "length", "long", "empty"],
)
def test_pax_header_gives_nothing_but_one_long_name(archive: Path, tmp_path: Path, before: bytes, name: str) -> None:
    (tmp_path / "pax.tar").write_bytes(before + gzip.decompress(archive.read_bytes()))
    assert open_source(tmp_path / "pax.tar").problems == (f"{name} is a pax header; an artifact holds files only.",)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_SPARSE])
def test_large_header_is_refused_before_it_is_read(
    tmp_path: Path, kind: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    whole = streams.Bounded.read

    def counted(stream: streams.Bounded, size: int) -> bytes:
        data = whole(stream, size)
        read.append(len(data))
        return data

    monkeypatch.setattr(streams.Bounded, "read", counted)
    (tmp_path / "bomb.tar.gz").write_bytes(gzip.compress(header(kind, b"\0" * (20 * 2**20)), 1))
    assert open_source(tmp_path / "bomb.tar.gz").problems[0].startswith("before is a ")
    assert sum(read) == tarfile.BLOCKSIZE


def test_size_below_nothing_is_damage(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(header(tarfile.REGTYPE, b"", -1) + gzip.decompress(archive.read_bytes()))
    with pytest.raises(ArtifactError, match=r"or it is damaged \(before has fewer than 0 bytes"):
        open_source(tmp_path / "a.tar")


@pytest.mark.parametrize(
    ("flags", "field", "said"),
    [
        (4, b"\4\0note", "extra fields"),
        (8, b"note\0", "a file name"),
        (16, b"note\0", "a comment"),
        (20, b"\4\0notenote\0", "extra fields and a comment"),
    ],
)
def test_gzip_header_that_holds_more_is_refused(
    archive: Path, tmp_path: Path, flags: int, field: bytes, said: str
) -> None:
    packed = archive.read_bytes()
    (tmp_path / "a.tar.gz").write_bytes(packed[:3] + bytes([flags]) + packed[4:10] + field + packed[10:])
    # It is sound gzip: only the field is more.
    assert gzip.decompress((tmp_path / "a.tar.gz").read_bytes()) == gzip.decompress(packed)
    assert f"its gzip header holds {said}, which ferry package never writes." in problems_of(tmp_path / "a.tar.gz")[0]


@pytest.mark.parametrize("more", [gzip.compress(b""), b"\0" * 512, b"text"], ids=["empty member", "zeros", "text"])
def test_what_follows_the_gzip_member_is_refused(archive: Path, tmp_path: Path, more: bytes) -> None:
    (tmp_path / "a.tar.gz").write_bytes(archive.read_bytes() + more)
    assert problems_of(tmp_path / "a.tar.gz")[0].startswith("more follows after the end of what gzip packed")


def test_tar_in_two_gzip_members_is_refused(archive: Path, tmp_path: Path) -> None:
    plain = gzip.decompress(archive.read_bytes())
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(plain[:5000]) + gzip.compress(plain[5000:]))
    assert problems_of(tmp_path / "a.tar.gz")[0].startswith("more follows after the end of what gzip packed")


def test_packed_bytes_that_unpack_to_nothing_count(archive: Path, tmp_path: Path) -> None:
    # A stored block of length 0, three million bytes of them, before the blocks that hold the tar.
    packed = archive.read_bytes()
    (tmp_path / "a.tar.gz").write_bytes(packed[:10] + b"\0\0\0\xff\xff" * 600_000 + packed[10:])
    assert open_source(tmp_path / "a.tar.gz").problems == ()
    assert open_source(tmp_path / "a.tar.gz", 2**20).problems[0].startswith("it holds more than 1,048,576 bytes")


def test_folder_that_is_too_large_is_refused(broken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = sum(path.stat().st_size for path in broken.iterdir())
    assert open_source(broken, size).problems == ()
    assert open_source(broken, size - 1).problems == (
        f"it holds more than {size - 1:,} bytes. If it is to be that large, allow it with --max-size.",
    )
    monkeypatch.setattr(limits, "MAX_OTHER_SIZE", 100)
    assert any("goldens.json has more than the 100 bytes" in problem for problem in open_source(broken).problems)
    with pytest.raises(ArtifactError, match="has more than the 100 bytes"):
        open_source(broken).read("goldens.json")


def test_what_is_no_file_in_a_folder_is_refused(broken: Path, artifact: Path) -> None:
    (broken / "model.pt").unlink()
    (broken / "model.pt").symlink_to(artifact / "model.pt")
    (broken / "README.md").unlink()
    (broken / "README.md").mkdir()
    (broken / "goldens.json").unlink()
    os.mkfifo(broken / "goldens.json")
    (broken / "gone").symlink_to("nowhere")
    assert problems_of(broken) == [
        "README.md is a folder; an artifact holds files only.",
        "goldens.json is a pipe; an artifact holds files only.",
        "gone is a symbolic link; an artifact holds files only.",
        "model.pt is a symbolic link; an artifact holds files only.",
        "gone does not belong to an artifact.",
    ]
    for name in ("model.pt", "README.md", "goldens.json", "gone", "none"):
        with pytest.raises(ArtifactError, match=f"{name} is missing from .*, or is no file"):
            open_source(broken).read(name)


def test_digest_is_that_of_the_tar_itself(archive: Path, contents: dict[str, bytes]) -> None:
    import hashlib

    assert tar_digest(TOP, contents) == hashlib.sha256(gzip.decompress(archive.read_bytes())).hexdigest()
