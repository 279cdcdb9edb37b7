"""Files that are either whole or absent."""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from export.files import dump_json, is_same, new_folder, parse_json, read_json, sha256_bytes, sha256_file


def write(folder: Path, content: str) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "file").write_text(content, "utf-8")


def write_new(target: Path, *, replace: bool, then: Callable[[], object]) -> None:
    with new_folder(target, replace=replace) as work:
        write(work, "new")
        then()


def content(folder: Path) -> str:
    return (folder / "sub" / "file").read_text("utf-8")


@pytest.fixture
def umask() -> Iterator[None]:
    old = os.umask(0o027)
    yield
    os.umask(old)


def test_hashes(tmp_path: Path) -> None:
    path = tmp_path / "abc"
    path.write_bytes(b"abc")
    # The example of FIPS 180-2.
    wanted = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256_file(path) == sha256_bytes(b"abc") == wanted


def test_dump_json_is_ascii_sorted_and_finite() -> None:
    assert dump_json({"b": 1, "a": "é"}) == '{\n  "a": "\\u00e9",\n  "b": 1\n}\n'
    with pytest.raises(ValueError, match="not JSON compliant"):
        dump_json(float("nan"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"\xef\xbb\xbf{}", "BOM"),
        (b'"\xff"', "can't decode"),
        (b'{"a": 1, "a": 2}', "the key 'a' stands twice in one object"),
        (b"[NaN]", "NaN is no number of JSON"),
        (b"[-Infinity]", "-Infinity is no number of JSON"),
        (b"[1e400]", "1e400 is beyond what float64 holds"),
        (b"[9223372036854775808]", "9223372036854775808 is beyond what 64 bits hold"),
        (b"[1" + b"0" * 5000 + b"]", "10{29}… is beyond what 64 bits hold"),
        (rb'["\ud800"]', r"'\\ud800' holds half of a surrogate pair"),
        (rb'[{"\udfff": 1}]', r"'\\udfff' holds half of a surrogate pair"),
        (b"[" * 33 + b"]" * 33, "nested too deeply"),
        (b'{"a":' * 33 + b"1" + b"}" * 33, "nested too deeply"),
        (b"[" * 100_000, "nested too deeply"),
    ],
    ids=str,
)
def test_json_that_readers_read_differently_is_refused(text: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_json(text)


def test_json_that_readers_read_alike_is_read() -> None:
    text = rb'{"a": [-9223372036854775808, 9223372036854775807, 1e308, -0.0, true, null, "\ud83d\ude00"]}'
    assert parse_json(text) == {"a": [-(2**63), 2**63 - 1, 1e308, 0.0, True, None, "\N{GRINNING FACE}"]}
    assert parse_json(b"[" * 32 + b"]" * 32)


def test_documents_are_the_same_in_type_too() -> None:
    assert is_same({"b": [1, "x"], "a": None}, {"a": None, "b": [1, "x"]})
    for one, other in ((1, True), (0, False), (1, 1.0), ([1], [1, 1]), ({"a": 0}, {"a": 0.0}), ("1", 1)):
        assert not is_same(one, other)
        assert not is_same([{"x": one}], [{"x": other}])


def test_read_json(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    with pytest.raises(ValueError, match=r"file\.json is missing\."):
        read_json(path)
    for damaged in (b"{", b'"\xff"', b""):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"file\.json is not valid JSON: "):
            read_json(path)
    path.write_text(dump_json({"a": [1]}), "utf-8")
    assert read_json(path) == {"a": [1]}
    with pytest.raises(ValueError, match=r"can't be read: Is a directory\."):
        read_json(tmp_path)


class TestNewFolder:
    @pytest.mark.parametrize("replace", [False, True])
    def test_appears_whole(self, tmp_path: Path, replace: bool) -> None:
        target = tmp_path / "a" / "b" / "target"
        with new_folder(target, replace=replace) as work:
            write(work, "new")
            assert not target.exists()
            # A rename is atomic within one file system only.
            assert work.stat().st_dev == target.parent.stat().st_dev
        assert content(target) == "new"
        assert os.listdir(target.parent) == ["target"]

    def test_replaces(self, tmp_path: Path) -> None:
        target = tmp_path / "target"
        target.mkdir()
        write(target, "old")
        (target / "left over").touch()
        with new_folder(target, replace=True) as work:
            write(work, "new")
            assert content(target) == "old"
        assert content(target) == "new"
        assert os.listdir(target) == ["sub"]
        assert os.listdir(tmp_path) == ["target"]

    @pytest.mark.parametrize("kind", ["folder", "empty folder", "file", "dangling link"])
    def test_never_changes_what_exists(self, tmp_path: Path, kind: str) -> None:
        target = tmp_path / "target"
        if kind == "file":
            target.touch()
        elif kind == "dangling link":
            target.symlink_to("nowhere")
        else:
            target.mkdir()
        if kind == "folder":
            write(target, "old")
        with pytest.raises(FileExistsError) as caught, new_folder(target, replace=False):
            pytest.fail("the block ran")
        assert str(caught.value) == f"{target} exists and is never changed."
        assert os.listdir(tmp_path) == ["target"]
        if kind == "folder":
            assert content(target) == "old"

    def test_never_changes_what_appeared_meanwhile(self, tmp_path: Path) -> None:
        target = tmp_path / "target"
        with pytest.raises(FileExistsError):
            write_new(target, replace=False, then=target.mkdir)
        assert os.listdir(target) == []
        assert os.listdir(tmp_path) == ["target"]

    @pytest.mark.parametrize("kind", ["folder", "file"])
    def test_never_changes_what_appeared_just_before_the_rename(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
    ) -> None:
        target = tmp_path / "target"
        rename = Path.rename

        def late(source: Path, to: Path) -> Path:
            if kind == "file":
                target.touch()
            else:
                target.mkdir()
                write(target, "theirs")
            return rename(source, to)

        monkeypatch.setattr(Path, "rename", late)
        with pytest.raises(FileExistsError) as caught:
            write_new(target, replace=False, then=lambda: None)
        assert str(caught.value) == f"{target} exists and is never changed."
        assert os.listdir(tmp_path) == ["target"]
        assert kind == "file" or content(target) == "theirs"

    @pytest.mark.parametrize("named", [False, True], ids=["a write", "an opening"])
    def test_error_of_the_disk_names_the_folder_that_a_person_asked_for(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
    ) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(OSError, match="No space") as caught, new_folder(Path("target"), replace=False) as work:
            raise OSError(errno.ENOSPC, "No space", *([str(work / "file")] if named else []))
        assert caught.value.filename == "target"
        assert os.listdir(tmp_path) == []

    def test_error_about_another_file_keeps_its_name(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError) as caught, new_folder(tmp_path / "target", replace=False):
            (tmp_path / "none").read_bytes()
        assert caught.value.filename == str(tmp_path / "none")

    @pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
    @pytest.mark.parametrize("replace", [False, True])
    def test_failure_leaves_nothing(self, tmp_path: Path, error: type[BaseException], replace: bool) -> None:
        def fail() -> None:
            raise error

        with pytest.raises(error):
            write_new(tmp_path / "made" / "target", replace=replace, then=fail)
        assert os.listdir(tmp_path) == []

    def test_failure_leaves_the_folders_that_were_there(self, tmp_path: Path) -> None:
        (tmp_path / "there").mkdir()
        with pytest.raises(RuntimeError), new_folder(tmp_path / "there" / "target", replace=False):
            raise RuntimeError
        assert os.listdir(tmp_path) == ["there"]

    @pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
    @pytest.mark.parametrize("failing", [1, 2], ids=["old-moved-away", "new-moved-in"])
    def test_failed_replacement_loses_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], failing: int
    ) -> None:
        target = tmp_path / "target"
        target.mkdir()
        write(target, "old")
        rename, calls = Path.rename, []

        def interrupted(self: Path, to: Path) -> Path:
            calls.append(to)
            if len(calls) == failing:
                raise error
            return rename(self, to)

        with pytest.raises(error):
            write_new(target, replace=True, then=lambda: monkeypatch.setattr(Path, "rename", interrupted))
        assert content(target) == "old"
        assert os.listdir(tmp_path) == ["target"]

    def test_old_folder_outlives_a_failed_restoration(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        target = tmp_path / "target"
        target.mkdir()
        write(target, "old")
        rename = Path.rename

        def only_away(self: Path, to: Path) -> Path:
            if to == target:
                raise OSError("disk")
            return rename(self, to)

        with pytest.raises(OSError, match="disk"):
            write_new(target, replace=True, then=lambda: monkeypatch.setattr(Path, "rename", only_away))
        (kept,) = tmp_path.glob(".target-*/old")
        assert content(kept) == "old"

    @pytest.mark.usefixtures("umask")
    def test_modes_follow_the_umask(self, tmp_path: Path) -> None:
        target = tmp_path / "target"
        with new_folder(target, replace=False) as work:
            write(work, "new")
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (target, target / "sub", target / "sub" / "file")]
        assert modes == [0o750, 0o750, 0o640]

    def test_relative_target_and_another_working_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path)
        with new_folder(Path("target"), replace=False) as work:
            os.chdir("elsewhere")
            write(work, "new")
        assert content(tmp_path / "target") == "new"
        assert sorted(os.listdir(tmp_path)) == ["elsewhere", "target"]

    def test_replaces_a_link_and_not_what_it_points_to(self, tmp_path: Path) -> None:
        (tmp_path / "pointed").mkdir()
        write(tmp_path / "pointed", "old")
        target = tmp_path / "target"
        target.symlink_to("pointed")
        with new_folder(target, replace=True) as work:
            write(work, "new")
        assert content(target) == "new"
        assert not target.is_symlink()
        assert content(tmp_path / "pointed") == "old"
