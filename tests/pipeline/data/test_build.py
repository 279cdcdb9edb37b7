"""The builder of the licences data set, on a small made package: no download."""

import gzip
import json
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pipeline.data.licences import build
from pipeline.data.licences.build import Package, Row, data_notice

pytest.importorskip("yaml", reason="building the data set needs PyYAML, a development dependency")

LICENCES = {"mit": "MIT", "gpl-2.0": "GPL-2.0-only", "apache-2.0": "Apache-2.0", "cpe": "Classpath-exception-2.0"}


def made_package(**rules: str) -> Package:
    """Make a package of licences and rules; `rules` are whole files."""
    licences = {
        key: f"---\nkey: {key}\nname: any\nspdx_license_key: {spdx}\n---\nthe text\n"
        for key, spdx in {**LICENCES, "unknown": "LicenseRef-scancode-unknown"}.items()
    }
    return Package("9.9", rules, licences, "The notice.\n")


def rule(text: str, expression: str = "mit", *, flags: str = "is_license_notice: yes") -> str:
    return f"---\nlicense_expression: {expression}\n{flags}\n---\n\n{text}\n"


def words(seed: int, count: int = 12) -> str:
    """Make a text that shares no triple with that of another seed."""
    return " ".join(f"w{seed}x{random.Random(seed).randrange(10**6) + i}" for i in range(count))


def filler(labels: dict[str, str] | None = None, count: int = 40) -> dict[str, str]:
    """Make enough distinct rules of each expression for every split to have some."""
    expressions = labels or {"mit": "mit", "gpl": "gpl-2.0"}
    return {
        f"{name}_{i}": rule(words(1000 * number + i), expression)
        for number, (name, expression) in enumerate(expressions.items())
        for i in range(count)
    }


def texts_of(built: build.Built) -> dict[str, tuple[str, str]]:
    return {row.rule: (row.text, row.label) for rows in built.rows.values() for row in rows}


class TestFrontMatter:
    def test_reads_values_and_text(self) -> None:
        front, text = build.split_front_matter("a", "---\nlicense_expression: mit\nrelevance: 100\n---\n\nThe text\n")
        assert front == {"license_expression": "mit", "relevance": 100}
        assert text.strip() == "The text"

    def test_a_rule_of_dashes_in_the_text_stays(self) -> None:
        _, text = build.split_front_matter("a", "---\nkey: mit\n---\n---\nThe text\n---\n")
        assert text == "---\nThe text\n---\n"

    def test_dashes_inside_a_block_do_not_end_it(self) -> None:
        front, text = build.split_front_matter("a", "---\nnotes: |\n  one\n  ---\n  two\nkey: mit\n---\nText")
        assert front == {"notes": "one\n---\ntwo\n", "key": "mit"}
        assert text == "Text"

    def test_empty_text(self) -> None:
        assert build.split_front_matter("a", "---\nkey: mit\n---")[1] == ""

    @pytest.mark.parametrize("content", ["The text", "---\nkey: mit\n", "---\n- mit\n---\ntext"])
    def test_refuses_what_has_none(self, content: str) -> None:
        with pytest.raises(ValueError, match=r"mit_7\.RULE must begin with YAML"):
            build.split_front_matter("mit_7.RULE", content)


class TestExpressions:
    @pytest.mark.parametrize(
        ("expression", "spdx"),
        [
            ("mit", "MIT"),
            ("MIT", "MIT"),
            ("mit OR gpl-2.0", "GPL-2.0-only OR MIT"),
            ("gpl-2.0 or mit", "GPL-2.0-only OR MIT"),
            ("mit AND apache-2.0", "Apache-2.0 AND MIT"),
            ("gpl-2.0 WITH cpe", "GPL-2.0-only WITH Classpath-exception-2.0"),
            ("mit OR gpl-2.0 WITH cpe", "GPL-2.0-only WITH Classpath-exception-2.0 OR MIT"),
            ("mit AND (gpl-2.0 OR apache-2.0)", "(Apache-2.0 OR GPL-2.0-only) AND MIT"),
            ("(mit AND gpl-2.0) OR apache-2.0", "Apache-2.0 OR GPL-2.0-only AND MIT"),
            ("mit AND gpl-2.0 OR apache-2.0", "Apache-2.0 OR GPL-2.0-only AND MIT"),
            ("mit OR (apache-2.0 OR (mit OR gpl-2.0))", "Apache-2.0 OR GPL-2.0-only OR MIT"),
            ("mit AND mit", "MIT"),
            ("(mit OR mit) AND apache-2.0", "Apache-2.0 AND MIT"),
            ("((mit))", "MIT"),
        ],
    )
    def test_translates(self, expression: str, spdx: str) -> None:
        assert build.spdx_expression(build.parse_expression(expression), LICENCES) == spdx

    @pytest.mark.parametrize("expression", ["", "mit OR", "OR mit", "(mit", "mit)", "mit gpl-2.0", "()", "mit WITH"])
    def test_refuses_what_is_none(self, expression: str) -> None:
        with pytest.raises(ValueError, match="is not a licence expression"):
            build.parse_expression(expression)

    def test_refuses_a_key_without_identifier(self) -> None:
        with pytest.raises(ValueError, match="'nobody' has no spdx_license_key"):
            build.spdx_expression(build.parse_expression("mit OR nobody"), LICENCES)

    def test_keys(self) -> None:
        assert build.expression_keys(build.parse_expression("mit AND (gpl-2.0 WITH cpe OR mit)")) == {
            "mit",
            "gpl-2.0",
            "cpe",
        }


class TestTexts:
    @pytest.mark.parametrize(
        ("raw", "clean"),
        [
            ("\n  a\t b\r\n\nc\u00a0d\u2028e ", "a b c d e"),
            ("the {{MIT}} licence", "the MIT licence"),
            ("\ufeffa\0b", "a b"),
            ("mail <joe.doe+x@mail.example.org>.", "mail <[email]>."),
            ("joe\\@example.org and CLA-[team]@example.com", "[email] and [email]"),
            ("joe@localhost", "[email]"),
            ("joe [at] example.org, joe (at) example (dot) org", "[email], [email]"),
            ("joe AT example DOT org; joe @ example . org", "[email]; [email]"),
            ("@license MIT, {@link x}, 19@var{yy}", "@license MIT, {@link x}, 19@var{yy}"),
            ("look at the licence at example.org", "look at the licence at example.org"),
            ("x" * 1999 + " yz", "x" * 1999),
        ],
    )
    def test_clean(self, raw: str, clean: str) -> None:
        assert build.clean_text(raw) == clean

    @pytest.mark.parametrize(
        ("one", "other", "equal"),
        [
            ("The MIT-License.", "the mit license", True),
            ("* the_MIT * License *", "THE MIT LICENSE", True),
            ("GPLv2+", "GPLv2", False),
            ("GPLv2+.", "'gplv2+'", True),
            ("GPL + MIT", "GPL, MIT", True),
            ("GPL v2", "GPLv2", False),
        ],
    )
    def test_fold(self, one: str, other: str, equal: bool) -> None:
        assert (build.fold(one) == build.fold(other)) is equal


class TestDuplicates:
    def test_keeps_the_first(self) -> None:
        rows = [Row("a", "The MIT", "MIT"), Row("b", "the mit.", "MIT"), Row("c", "other", "MIT")]
        assert build.resolve_duplicates(rows) == ([rows[0], rows[2]], 0)

    def test_the_most_frequent_label_wins(self) -> None:
        rows = [Row("a", "The MIT", "X"), Row("b", "the mit.", "MIT"), Row("c", "the mit", "MIT")]
        assert build.resolve_duplicates(rows) == ([rows[1]], 0)

    def test_a_tie_drops_all(self) -> None:
        rows = [Row("a", "The MIT", "X"), Row("b", "the mit.", "MIT"), Row("c", "other", "MIT")]
        assert build.resolve_duplicates(rows) == ([rows[2]], 1)


class TestClusters:
    def test_joins_by_jaccard_at_the_threshold(self) -> None:
        base = words(1, 11).split()  # 9 triples
        at_threshold = [*base[:10], "other"]  # 8 shared of 10: 0.8
        below = [*base[:9], "other", "another"]  # 7 shared of 11: 0.64
        texts = [" ".join(base), words(2), " ".join(at_threshold), words(3)]
        assert build.near_duplicate_clusters(texts) == [0, 1, 0, 3]
        assert build.near_duplicate_clusters([" ".join(base), " ".join(below)]) == [0, 1]

    def test_chains(self) -> None:
        base = words(1, 40).split()
        texts = [" ".join(base[:-5]), words(2), " ".join(base[5:]), " ".join(base)]
        assert build.near_duplicate_clusters(texts) == [0, 1, 0, 0]

    def test_short_texts(self) -> None:
        assert build.near_duplicate_clusters(["MIT", "(mit)", "GPL v2", "GPLv2", "GPLv2+", "MIT X"]) == [
            0,
            0,
            2,
            2,
            2,
            5,
        ]

    def test_finds_every_pair_that_brute_force_finds(self) -> None:
        generator = random.Random(7)
        texts = []
        for seed in range(12):
            base = words(seed, 60).split()
            for _ in range(8):
                copy = list(base)
                for _ in range(generator.randrange(5)):
                    copy[generator.randrange(60)] = f"c{generator.randrange(10**6)}"
                texts.append(" ".join(copy))
        clusters = build.near_duplicate_clusters(texts)
        triples = [build.word_triples(text) for text in texts]
        pairs = [
            (i, j)
            for i in range(len(texts))
            for j in range(i)
            if len(triples[i] & triples[j]) >= 0.8 * len(triples[i] | triples[j])
        ]
        assert len(pairs) > 50
        assert all(clusters[i] == clusters[j] for i, j in pairs)
        assert len(set(clusters)) >= 12


class TestSplits:
    def rows(self, *sizes: int) -> tuple[list[Row], list[int]]:
        rows, clusters = [], []
        for cluster, size in enumerate(sizes):
            for member in range(size):
                rows.append(Row(f"r{cluster}-{member}", words(cluster) + f" v{member}", "AB"[cluster % 2]))
                clusters.append(cluster)
        return rows, clusters

    def test_shares(self) -> None:
        rows, clusters = self.rows(*[1] * 4000)
        assigned = build.assign_splits(rows, clusters)
        assert 350 < assigned.count("test") < 450
        assert 350 < assigned.count("validation") < 450

    def test_a_large_cluster_is_in_train_and_the_rest_makes_up_for_it(self) -> None:
        rows, clusters = self.rows(*[1000, 2000], *[1] * 3000)
        assigned = build.assign_splits(rows, clusters)
        assert set(assigned[:3000]) == {"train"}
        assert 500 < assigned.count("test") < 700
        assert 500 < assigned.count("validation") < 700

    def test_a_cluster_is_never_divided(self) -> None:
        rows, clusters = self.rows(*[2] * 1500)
        assigned = build.assign_splits(rows, clusters)
        assert assigned[::2] == assigned[1::2]

    def test_does_not_depend_on_the_order_of_rows(self) -> None:
        rows, clusters = self.rows(*[1] * 600)
        forward = dict(zip((row.rule for row in rows), build.assign_splits(rows, clusters), strict=True))
        assert forward == dict(
            zip((row.rule for row in rows[::-1]), build.assign_splits(rows[::-1], clusters[::-1]), strict=True)
        )

    def test_every_label_is_in_every_split(self) -> None:
        rows, clusters = self.rows(*[1] * 600)
        for first in range(50):
            rare = [Row(row.rule, row.text, "rare") for row in rows[first : first + 3]]
            changed = [*rows[:first], *rare, *rows[first + 3 :]]
            assigned = build.assign_splits(changed, clusters)
            assert {split for row, split in zip(changed, assigned, strict=True) if row.label == "rare"} == set(
                build.SPLITS
            )

    def test_refuses_a_label_of_one_cluster(self) -> None:
        rows, clusters = self.rows(*[1] * 600)
        rows.append(Row("rare", "a rare one", "rare"))
        with pytest.raises(ValueError, match="rare can't be in every split: its rows form only 1 clusters"):
            build.assign_splits(rows, [*clusters, 600])


COUNT = 80


class TestBuild:
    def test_keeps_what_the_issue_names_and_drops_the_rest(self) -> None:
        package = made_package(
            **filler(count=COUNT),
            text=rule("kept text one", flags="is_license_text: yes"),
            tag=rule("kept tag one", flags="is_license_tag: yes\nrelevance: 100"),
            reference=rule("kept reference one", flags="is_license_reference: yes\nnotes: any"),
            clue=rule("a clue", flags="is_license_clue: yes"),
            intro=rule("an intro", flags="is_license_intro: yes"),
            off=rule("switched off", flags="is_license_notice: no"),
            false_positive=rule("a false positive", flags="is_license_notice: yes\nis_false_positive: yes"),
            bare_false_positive="---\nis_false_positive: yes\n---\nno expression\n",
            deprecated=rule("withdrawn", flags="is_license_notice: yes\nis_deprecated: yes"),
            nameless=rule("names none", "unknown"),
            half_nameless=rule("names one", "mit AND unknown"),
            rare=rule("too rare", "apache-2.0"),
            empty=rule("* * *"),
        )
        built = build.build(package, min_examples=60)
        kept = texts_of(built)
        assert {name for name in kept if "_" not in name} == {"text", "tag", "reference"}
        assert len(kept) == 2 * COUNT + 3
        assert kept["text"] == ("kept text one", "MIT")
        assert built.labels == ["GPL-2.0-only", "MIT"]
        assert [count for _, count in built.steps] == [
            2 * COUNT + 13,
            2 * COUNT + 11,
            2 * COUNT + 8,
            2 * COUNT + 7,
            2 * COUNT + 6,
            2 * COUNT + 6,
            2 * COUNT + 6,
            2 * COUNT + 4,
            2 * COUNT + 3,
        ]

    def test_counts_examples_by_label_after_duplicates_are_gone(self) -> None:
        expressions = {"a": "mit OR gpl-2.0", "b": "gpl-2.0 OR mit", "mit": "mit"}
        built = build.build(made_package(**filler(expressions, COUNT // 2)), min_examples=COUNT)
        assert built.labels == ["GPL-2.0-only OR MIT"]
        doubled = {f"again_{i}": rule(words(2000 + i).upper()) for i in range(COUNT // 2)}
        assert build.build(made_package(**filler(expressions, COUNT // 2), **doubled), min_examples=COUNT).labels == [
            "GPL-2.0-only OR MIT"
        ]

    def test_texts_that_are_equal_after_the_cut_are_duplicates(self) -> None:
        long = words(1, 400)
        assert len(long) > build.MAX_CHARACTERS
        built = build.build(
            made_package(**filler(count=COUNT), one=rule(long + " tail"), two=rule(long + " other tail")),
            min_examples=60,
        )
        assert "one" in texts_of(built)
        assert "two" not in texts_of(built)


def unpack(package: Package, folder: Path) -> Path:
    """Write a package as the wheel would unpack."""
    files = {
        **{f"licensedcode/data/rules/{name}.RULE": content for name, content in package.rules.items()},
        **{f"licensedcode/data/licenses/{name}.LICENSE": content for name, content in package.licences.items()},
        "licensedcode_data-9.9.dist-info/NOTICE": package.notice,
        "licensedcode_data-9.9.dist-info/METADATA": "Metadata-Version: 2.1\nName: licensedcode-data\nVersion: 9.9\n",
        "licensedcode/__init__.py": "",
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, "utf-8")
    return folder


class TestCommand:
    @pytest.fixture
    def source(self, tmp_path: Path) -> Path:
        package = made_package(**filler({"mit": "mit", "gpl": "gpl-2.0 WITH cpe"}, COUNT))
        return unpack(package, tmp_path / "package")

    def test_writes_the_same_bytes_from_a_folder_and_from_a_wheel(self, source: Path, tmp_path: Path) -> None:
        wheel = tmp_path / "made.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for path in sorted(source.rglob("*"), reverse=True):
                archive.write(path, path.relative_to(source))
        results = []
        for number, origin in enumerate((source, source, wheel)):
            target = tmp_path / f"target{number}"
            assert build.main(["--source", str(origin), "--target", str(target)]) == 0
            results.append({path.name: path.read_bytes() for path in target.iterdir()})
        assert results[0] == results[1] == results[2]
        # The time of a gzip header is 0, or two builds in different seconds would differ.
        assert results[0][build.DATA_FILE][4:8] == bytes(4)
        assert set(results[0]) == {build.DATA_FILE, build.RECORD_FILE, "NOTICE", "README.md"}

    def test_writes_rows_record_notice_and_counts(
        self, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        target = tmp_path / "target"
        target.mkdir()
        readme = "# Title\n<!-- counts: written by build.py -->\nold\n<!-- end of counts -->\nThe end\n"
        (target / "README.md").write_text(readme, "utf-8")
        assert build.main(["--source", str(source), "--target", str(target)]) == 0
        counts = capsys.readouterr().out
        assert (target / "README.md").read_text("utf-8") == readme.replace("old\n", counts)
        assert f"| rule files | {2 * COUNT} |" in counts
        record = json.loads((target / build.RECORD_FILE).read_text("utf-8"))
        assert record["labels"] == ["GPL-2.0-only WITH Classpath-exception-2.0", "MIT"]
        assert sum(record["rows"].values()) == 2 * COUNT
        assert record["origin"] == "the PyPI package licensedcode-data 9.9"
        lines = gzip.decompress((target / build.DATA_FILE).read_bytes()).decode("utf-8").splitlines()
        assert len(lines) == 2 * COUNT
        assert set(json.loads(lines[0])) == {"split", "label", "rule", "text"}
        assert (target / "NOTICE").read_text("utf-8").endswith("\nThe notice.\n")

    def test_refuses_what_is_no_package(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "file.whl").write_bytes(b"no zip")
        for source in (tmp_path, tmp_path / "file.whl", tmp_path / "missing"):
            assert build.main(["--source", str(source), "--target", str(tmp_path / "target")]) == 1
            error = capsys.readouterr().err
            assert error.startswith("the source must be an unpacked licensedcode-data or its wheel; ")
            assert error.count("\n") == 1
        assert not (tmp_path / "target").exists()

    def test_without_pyyaml(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.setitem(sys.modules, "yaml", None)
        assert build.main([]) == 2
        assert capsys.readouterr().err.startswith("Building the data set needs PyYAML, which is not installed.")


class TestDownload:
    def pip(self, monkeypatch: pytest.MonkeyPatch, *, code: int, wheel: bytes | None) -> None:
        def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
            assert "licensedcode-data==32.1.0" in command
            if wheel is not None:
                (Path(command[-1]) / "made.whl").write_bytes(wheel)
            return subprocess.CompletedProcess(command, code, "", "Looking\nERROR: no network\n" if code else "")

        monkeypatch.setattr(build.subprocess, "run", run)

    def test_refuses_another_wheel(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.pip(monkeypatch, code=0, wheel=b"other")
        with pytest.raises(ValueError, match=r"made\.whl must have the SHA-256 18f60bde[0-9a-f]{56}; got d9298a10"):
            build.download(tmp_path)

    def test_accepts_the_right_one(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.pip(monkeypatch, code=0, wheel=b"other")
        monkeypatch.setattr(build, "WHEEL_SHA256", build.hashlib.sha256(b"other").hexdigest())
        assert build.download(tmp_path) == tmp_path / "made.whl"

    def test_says_why_pip_failed(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.pip(monkeypatch, code=1, wheel=None)
        with pytest.raises(ValueError, match=r"could not be downloaded: ERROR: no network\. Give it with --source"):
            build.download(tmp_path)


def test_notice_leaves_out_the_section_on_embedded_programs():
    head, data = "Licenses\n", "ScanCode data attribution\n===\ny\n"
    programs = "Third-party software licenses\n===\nx\n"
    assert data_notice(head + programs + data) == head + data
    assert data_notice(head + data) == head + data
