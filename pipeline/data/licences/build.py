"""Builds the licences data set from the licence rules of the PyPI package licensedcode-data.

    python -m pipeline.data.licences.build [--source DIR_OR_WHEEL] [--target DIR]

About a minute on one core and 1 GB. A development tool: it needs PyYAML, and a download when no source is given.
README.md beside this file says what each step is for.
"""

import argparse
import gzip
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

PACKAGE = "licensedcode-data"
VERSION = "32.1.0"
WHEEL_SHA256 = "18f60bde6dbabbc0a925d45ed80089cdbb7168156a2a1c118737198f9b743b96"

HERE = Path(__file__).resolve().parent
DATA_FILE = "licences.jsonl.gz"
RECORD_FILE = "licences.json"
ATTRIBUTION = (
    "Copyright (c) nexB Inc. and others. ScanCode is a trademark of nexB Inc. CC-BY-4.0, "
    "https://creativecommons.org/licenses/by/4.0/legalcode. Source: https://github.com/nexB/scancode-toolkit. Adapted."
)

KEPT_KINDS = ("is_license_text", "is_license_notice", "is_license_reference", "is_license_tag")
# Keys that say what sort of licence it may be, and name none.
NAMELESS = frozenset(
    {
        "commercial-license",
        "commercial-option",
        "free-unknown",
        "license-file-reference",
        "no-license",
        "other-copyleft",
        "other-permissive",
        "proprietary",
        "proprietary-license",
        "see-license",
        "unknown",
        "unknown-license-reference",
        "unknown-spdx",
        "warranty-disclaimer",
    }
)
MIN_EXAMPLES = 60
MAX_CHARACTERS = 2000
SPLITS = ("train", "validation", "test")
NEAR_DUPLICATE = 0.8
HELD_OUT = 0.1
# A larger cluster is in train: held out, one text would be a fifth of the score or more.
MAX_CLUSTER = 0.02
EMAIL_PLACEHOLDER = "[email]"

_FRONT_MATTER = re.compile(r"\s*---[ \t]*\n(.*?\n)---[ \t]*(?:\n|\Z)", re.DOTALL)
_EMAIL = re.compile(
    r"""
    (?<! [\w.+%-] ) (?:  # no start inside a word, or long words would take quadratic time
    [\w.+%-]+ (?: \[ \w+ \] )? \\? @ [\w-]+ (?: \. [\w-]+ )+       # name@host.org, name-[team]@host.org, name\@host.org
    | (?= [\d.+%_-]* [^\W\d_] ) [\w.+%-]+ \\? @ \w [\w-]*          # name@host
    | [\w.+%-]+ [ ] @ [ ] [\w-]+ (?: [ ]? \. [ ]? \w+ )+           # name @ host . org
    | [\w.+%-]+ [ ]? [\[(] at [\])] [ ]? [\w-]+ (?: [ ]? (?: \. | [\[(] dot [\])] ) [ ]? \w+ )+
    | [\w.+%-]+ [ ] at [ ] [\w-]+ (?: [ ] dot [ ] \w+ )+
    )
    """,
    re.VERBOSE | re.IGNORECASE,
)

# A pair at Jaccard 0.8 is missed with probability (1 − 0.8^6)^64 < 4e-9; every candidate is then checked exactly.
_BANDS, _ROWS = 64, 6
_MERSENNE_PRIME = np.uint64((1 << 31) - 1)


@dataclass(frozen=True)
class Package:
    """The files of an unpacked licensedcode-data, by name without the suffix."""

    version: str
    rules: dict[str, str]
    licences: dict[str, str]
    notice: str


@dataclass(frozen=True)
class Row:
    """One example: the rule's file name, its text and the SPDX expression."""

    rule: str
    text: str
    label: str


@dataclass(frozen=True)
class Built:
    """The data set: its rows by split, and how many rows each step left."""

    rows: dict[str, list[Row]]
    steps: list[tuple[str, int]]

    @property
    def labels(self) -> list[str]:
        return sorted({row.label for rows in self.rows.values() for row in rows})


def read_package(source: Path) -> Package:
    """Read a wheel, or the folder it was unpacked to.

    Raises:
        ValueError: if `source` is not such a package.
    """
    if source.is_dir():
        return _sort_files(
            (path.relative_to(source).as_posix(), path.read_bytes())
            for path in sorted(source.rglob("*"))
            if path.is_file()
        )
    try:
        with zipfile.ZipFile(source) as wheel:
            return _sort_files((name, wheel.read(name)) for name in sorted(wheel.namelist()))
    except (FileNotFoundError, zipfile.BadZipFile):
        raise ValueError(
            f"the source must be an unpacked {PACKAGE} or its wheel; got {source}. "
            "Leave --source out to have it downloaded."
        ) from None


def _sort_files(files: Iterable[tuple[str, bytes]]) -> Package:
    rules: dict[str, str] = {}
    licences: dict[str, str] = {}
    notice = version = ""
    for name, raw in files:
        path = Path(name)
        in_info = path.parent.name.endswith(".dist-info")
        if name.startswith("licensedcode/data/rules/") and path.suffix == ".RULE":
            rules[path.stem] = _decode(raw)
        elif name.startswith("licensedcode/data/licenses/") and path.suffix == ".LICENSE":
            licences[path.stem] = _decode(raw)
        elif in_info and path.name == "NOTICE":
            notice = _decode(raw)
        elif in_info and path.name == "METADATA":
            version = re.findall(r"^Version: (\S+)$", _decode(raw), re.MULTILINE)[0]
    missing = [
        what
        for what, got in {
            "licensedcode/data/rules/*.RULE": rules,
            "licensedcode/data/licenses/*.LICENSE": licences,
            "*.dist-info/NOTICE": notice,
            "*.dist-info/METADATA": version,
        }.items()
        if not got
    ]
    if missing:
        raise ValueError(f"the source must be an unpacked {PACKAGE} or its wheel; it has no {', '.join(missing)}.")
    return Package(version, rules, licences, notice)


def _decode(raw: bytes) -> str:
    return raw.decode("utf-8").replace("\r\n", "\n")


def split_front_matter(name: str, content: str) -> tuple[dict[str, Any], str]:
    """Split a rule or licence file into its YAML front matter and its text.

    Raises:
        ValueError: if there is no front matter; the message names the file.
    """
    import yaml

    match = _FRONT_MATTER.match(content)
    front = yaml.load(match[1], getattr(yaml, "CSafeLoader", yaml.SafeLoader)) if match else None
    if match is None or not isinstance(front, dict):
        raise ValueError(f"{name} must begin with YAML between two lines of ---.")
    return front, content[match.end() :]


def parse_expression(expression: str) -> Any:
    """Parse a licence expression into nested tuples (operator, operand, operand, …) over lower-case keys.

    WITH binds before AND, AND before OR, as in SPDX 2.3 annex D.

    Raises:
        ValueError: if it is no expression.
    """
    tokens = re.findall(r"[()]|[^\s()]+", expression)

    def parse(operators: Sequence[str]) -> Any:
        if not operators:
            return parse_operand()
        operands = [parse(operators[1:])]
        while tokens and tokens[0].upper() == operators[0]:
            tokens.pop(0)
            operands.append(parse(operators[1:]))
        return operands[0] if len(operands) == 1 else (operators[0], *operands)

    def parse_operand() -> Any:
        token = tokens.pop(0) if tokens else ""
        if token == "(":
            inside = parse(("OR", "AND", "WITH"))
            if tokens[:1] == [")"]:
                tokens.pop(0)
                return inside
        elif token and token != ")" and token.upper() not in ("OR", "AND", "WITH"):
            return token.lower()
        raise ValueError(f"{expression!r} is not a licence expression.")

    tree = parse(("OR", "AND", "WITH"))
    if tokens:
        raise ValueError(f"{expression!r} is not a licence expression.")
    return tree


def expression_keys(tree: Any) -> set[str]:
    return {tree} if isinstance(tree, str) else set().union(*(expression_keys(operand) for operand in tree[1:]))


def spdx_expression(tree: Any, identifiers: Mapping[str, str]) -> str:
    """Write a parsed expression with SPDX identifiers.

    The operands of AND and OR are flattened, sorted and named once, so `mit OR gpl-2.0` and `gpl-2.0 OR mit` are one
    label.

    Raises:
        ValueError: if a key has no identifier.
    """
    if isinstance(tree, str):
        if tree not in identifiers:
            raise ValueError(f"the licence {tree!r} has no spdx_license_key.")
        return identifiers[tree]
    operator, *operands = tree
    if operator == "WITH":
        return " WITH ".join(spdx_expression(operand, identifiers) for operand in operands)
    flat = list(operands)
    while any(nested := [operand for operand in flat if operand[0] == operator]):
        flat = [operand for operand in flat if operand[0] != operator] + [part for one in nested for part in one[1:]]
    written = set()
    for operand in flat:
        part = spdx_expression(operand, identifiers)
        written.add(f"({part})" if operator == "AND" and operand[0] == "OR" and " OR " in part else part)
    return f" {operator} ".join(sorted(written, key=lambda part: (part.lower(), part)))


def clean_text(text: str) -> str:
    """Drop the rules' own `{{ }}` mark-up, replace e-mail addresses, collapse white space, cut."""
    text = text.replace("{{", " ").replace("}}", " ").replace("\ufeff", "").replace("\0", " ")
    text = _EMAIL.sub(EMAIL_PLACEHOLDER, " ".join(text.split()))
    return text[:MAX_CHARACTERS].rstrip()


def fold(text: str) -> str:
    """What is compared for exact duplicates: lower case, without punctuation.

    A `+` that ends a word stays: `GPLv2+` and `GPLv2` are different licences.
    """
    return " ".join(re.findall(r"[^\W_]+\+?", text.casefold()))


def _fold_closely(text: str) -> str:
    return re.sub(r"[\W_]+", "", text.casefold())


def word_triples(text: str) -> frozenset[tuple[str, ...]]:
    """The set of word triples; a text of one or two words is one short triple."""
    words = re.findall(r"[^\W_]+", text.casefold())
    return frozenset(tuple(words[i : i + 3]) for i in range(max(1, len(words) - 2)))


def near_duplicate_clusters(texts: Sequence[str], threshold: float = NEAR_DUPLICATE) -> list[int]:
    """Cluster texts: two share a cluster if a chain of near-duplicates joins them.

    Near-duplicates have the same letters and digits, or word triples of Jaccard ≥ `threshold`: candidates by MinHash
    (Broder 1997) in bands, each checked exactly.

    Returns:
        for each text the index of its cluster's first text.
    """
    parents = list(range(len(texts)))

    def find(index: int) -> int:
        while parents[index] != index:
            parents[index] = parents[parents[index]]
            index = parents[index]
        return index

    def join(one: int, other: int) -> None:
        one, other = find(one), find(other)
        parents[max(one, other)] = min(one, other)

    first: dict[str, int] = {}
    for index, text in enumerate(texts):
        join(index, first.setdefault(_fold_closely(text), index))

    triples = [word_triples(text) for text in texts]
    checked: set[tuple[int, int]] = set()
    for bucket in _buckets(triples):
        for position, i in enumerate(bucket):
            for j in bucket[position + 1 :]:
                if (i, j) in checked or find(i) == find(j):
                    continue
                checked.add((i, j))
                shared = len(triples[i] & triples[j])
                if shared >= threshold * (len(triples[i]) + len(triples[j]) - shared):
                    join(i, j)
    return [find(index) for index in range(len(texts))]


def _buckets(triples: Sequence[frozenset[tuple[str, ...]]]) -> Iterator[list[int]]:
    """Yield the groups of indices whose MinHash signatures agree on a band."""
    generator = np.random.Generator(np.random.PCG64(2024))
    scale = generator.integers(1, int(_MERSENNE_PRIME), _BANDS * _ROWS, dtype=np.uint64)
    shift = generator.integers(0, int(_MERSENNE_PRIME), _BANDS * _ROWS, dtype=np.uint64)
    buckets: list[dict[bytes, list[int]]] = [defaultdict(list) for _ in range(_BANDS)]
    for index, one in enumerate(triples):
        hashes: npt.NDArray[np.uint64] = np.array([_hash31(triple) for triple in one], dtype=np.uint64)
        signature = ((hashes[:, None] * scale + shift) % _MERSENNE_PRIME).min(axis=0)  # (bands · rows)
        for band in range(_BANDS):
            buckets[band][signature[band * _ROWS : (band + 1) * _ROWS].tobytes()].append(index)
    for groups in buckets:
        yield from (group for group in groups.values() if len(group) > 1)


def _hash31(triple: tuple[str, ...]) -> int:
    digest = hashlib.blake2b(" ".join(triple).encode("utf-8"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % int(_MERSENNE_PRIME)


def resolve_duplicates(rows: Sequence[Row]) -> tuple[list[Row], int]:
    """Keep one row for each folded text: the first of those with its most frequent label.

    A text whose most frequent label is tied with another has no one right answer and is dropped.

    Returns:
        the kept rows and the number of dropped texts.
    """
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[fold(row.text)].append(row)
    kept = []
    for group in groups.values():
        ranking = Counter(row.label for row in group).most_common(2)
        if len(ranking) == 1 or ranking[0][1] > ranking[1][1]:
            kept.append(next(row for row in group if row.label == ranking[0][0]))
    return kept, len(groups) - len(kept)


def assign_splits(rows: Sequence[Row], clusters: Sequence[int]) -> list[str]:
    """Assign 80 % of the rows to train, 10 % to validation and 10 % to test, by a hash of their cluster's text.

    Clusters above 2 % of the rows go to train. A label that lacks a split gives it its smallest cluster, so that every
    label is in every split.

    Raises:
        ValueError: if a label has too few clusters for that.
    """
    members: dict[int, list[int]] = defaultdict(list)
    clusters_of: dict[str, set[int]] = defaultdict(set)
    for index, cluster in enumerate(clusters):
        members[cluster].append(index)
        clusters_of[rows[index].label].add(cluster)
    labels_of = {cluster: {rows[index].label for index in own} for cluster, own in members.items()}
    largest = max(1.0, MAX_CLUSTER * len(rows))
    small = {cluster for cluster, own in members.items() if len(own) <= largest}
    # Only small clusters are held out, so a larger share of them makes up the 10 % of the rows.
    share = HELD_OUT * len(rows) / max(1, sum(len(members[cluster]) for cluster in small))
    place = {}
    for cluster, own in members.items():
        text = min(_fold_closely(rows[index].text) for index in own)
        place[cluster] = int.from_bytes(hashlib.sha256(text.encode("utf-8")).digest()[:8], "big") / 2**64
    split = dict.fromkeys(members, "train")
    for cluster in small:
        if place[cluster] < 2 * share:
            split[cluster] = "test" if place[cluster] < share else "validation"

    def clusters_in(label: str, wanted: str) -> list[int]:
        return [cluster for cluster in clusters_of[label] if split[cluster] == wanted]

    for label in sorted(clusters_of):
        for wanted in SPLITS:
            if clusters_in(label, wanted):
                continue
            spare = [
                cluster
                for cluster in clusters_of[label] & small
                if all(len(clusters_in(own, split[cluster])) > 1 for own in labels_of[cluster])
            ]
            if not spare:
                raise ValueError(
                    f"{label} can't be in every split: its rows form only {len(clusters_of[label])} clusters of "
                    "near-duplicates. Raise MIN_EXAMPLES."
                )
            split[min(spare, key=lambda cluster: (len(members[cluster]), place[cluster]))] = wanted
    return [split[cluster] for cluster in clusters]


def build(package: Package, *, min_examples: int = MIN_EXAMPLES) -> Built:
    """Build the data set; a pure function of the package.

    Raises:
        ValueError: if a file of the package is not what it should be.
    """
    identifiers = {}
    for name, content in package.licences.items():
        front, _ = split_front_matter(name, content)
        if "spdx_license_key" in front:
            identifiers[str(front["key"])] = str(front["spdx_license_key"])

    steps = [("rule files", len(package.rules))]
    fronts = [(name, *split_front_matter(name, package.rules[name])) for name in sorted(package.rules)]
    fronts = [entry for entry in fronts if not entry[1].get("is_false_positive")]
    steps.append(("not a false positive", len(fronts)))
    fronts = [entry for entry in fronts if any(entry[1].get(kind) for kind in KEPT_KINDS)]
    steps.append(("text, notice, reference or tag", len(fronts)))
    fronts = [entry for entry in fronts if not entry[1].get("is_deprecated")]
    steps.append(("not withdrawn by its authors (`is_deprecated`)", len(fronts)))

    trees = {name: parse_expression(str(front["license_expression"])) for name, front, _ in fronts}
    rows = [Row(name, clean_text(text), spdx_expression(trees[name], identifiers)) for name, _, text in fronts]
    rows = [row for row in rows if fold(row.text)]
    steps.append(("with a letter or digit", len(rows)))

    rows, ambiguous = resolve_duplicates(rows)
    steps.append(("exact duplicates after folding removed", len(rows) + ambiguous))
    steps.append(("without texts whose most frequent label is tied", len(rows)))
    rows = [row for row in rows if not expression_keys(trees[row.rule]) & NAMELESS]
    steps.append(("the expression names a licence", len(rows)))
    examples = Counter(row.label for row in rows)
    rows = [row for row in rows if examples[row.label] >= min_examples]
    steps.append((f"labels with at least {min_examples} examples", len(rows)))

    clusters = near_duplicate_clusters([row.text for row in rows])
    assigned = assign_splits(rows, clusters)
    return Built(
        {split: [row for row, own in zip(rows, assigned, strict=True) if own == split] for split in SPLITS}, steps
    )


def write(built: Built, package: Package, target: Path) -> None:
    """Write the data file, its record, NOTICE and the counts in README.md into `target`."""
    target.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps({"split": split, "label": row.label, "rule": row.rule, "text": row.text}, ensure_ascii=False) + "\n"
        for split in SPLITS
        for row in built.rows[split]
    ]
    with (target / DATA_FILE).open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write("".join(lines).encode("utf-8"))
    record = {
        "name": "licences",
        "file": DATA_FILE,
        "sha256": hashlib.sha256((target / DATA_FILE).read_bytes()).hexdigest(),
        "origin": f"the PyPI package {PACKAGE} {package.version}",
        "licence": "CC-BY-4.0",
        "attribution": ATTRIBUTION,
        "rows": {split: len(built.rows[split]) for split in SPLITS},
        "labels": built.labels,
    }
    (target / RECORD_FILE).write_text(json.dumps(record, indent=2) + "\n", "utf-8")
    (target / "NOTICE").write_text(
        f"{DATA_FILE} is adapted from the licence rules of {PACKAGE} {package.version}:\n"
        "a selection, relabelled with SPDX expressions, with white space collapsed, e-mail addresses\n"
        f"replaced and texts cut at {MAX_CHARACTERS:,} characters (README.md says how).\n"
        "It is licensed under CC-BY-4.0, as the rules are:\n"
        "https://creativecommons.org/licenses/by/4.0/legalcode\n\nThe notice of the rules follows.\n\n\n"
        + data_notice(package.notice),
        "utf-8",
    )
    readme = target / "README.md"
    begin, end = "<!-- counts: written by build.py -->\n", "<!-- end of counts -->\n"
    before, _, rest = (readme.read_text("utf-8") if readme.exists() else begin + end).partition(begin)
    readme.write_text(before + begin + describe(built) + end + rest.partition(end)[2], "utf-8")


def data_notice(notice: str) -> str:
    """The package's notice without its section on the third-party programs that ScanCode embeds: none are here."""
    programs, data = notice.find("Third-party software licenses\n"), notice.find("ScanCode data attribution\n")
    return notice if not 0 <= programs < data else notice[:programs] + notice[data:]


def describe(built: Built) -> str:
    """The counts a step, a split and a class, as Markdown."""
    lines = ["| step | rows left |", "|---|---:|"]
    lines += [f"| {step} | {count:,} |" for step, count in built.steps]
    counts = {split: Counter(row.label for row in rows) for split, rows in built.rows.items()}
    lines += ["", f"| label | {' | '.join(SPLITS)} | all |", "|---|---:|---:|---:|---:|"]
    totals = [sum(counts[split].values()) for split in SPLITS]
    lines.append(f"| **{len(built.labels)} labels** | {' | '.join(f'{n:,}' for n in [*totals, sum(totals)])} |")
    for label in sorted(built.labels, key=lambda label: (-sum(counts[split][label] for split in SPLITS), label)):
        numbers = [counts[split][label] for split in SPLITS]
        lines.append(f"| {label} | {' | '.join(f'{n:,}' for n in [*numbers, sum(numbers)])} |")
    return "\n".join(lines) + "\n"


def download(folder: Path) -> Path:
    """Download the wheel with pip and check its hash.

    Raises:
        ValueError: if pip fails, or what came is not the wheel this was written for.
    """
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", f"{PACKAGE}=={VERSION}"]
    done = subprocess.run([*command, "--dest", str(folder)], capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        reason = (done.stderr.strip().splitlines() or ["no wheel came"])[-1]
        raise ValueError(f"{PACKAGE} {VERSION} could not be downloaded: {reason}. Give it with --source.")
    sha256 = hashlib.sha256(wheels[0].read_bytes()).hexdigest()
    if sha256 != WHEEL_SHA256:
        raise ValueError(f"{wheels[0].name} must have the SHA-256 {WHEEL_SHA256}; got {sha256}. Do not use it.")
    return wheels[0]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pipeline.data.licences.build", description="Build the data set.")
    parser.add_argument("--source", type=Path, help=f"an unpacked {PACKAGE}, or its wheel (default: download it)")
    parser.add_argument(
        "--target", type=Path, default=HERE, help="the folder to write to (default: beside this script)"
    )
    options = parser.parse_args(arguments)
    try:
        import yaml  # noqa: F401
    except ImportError:
        print("Building the data set needs PyYAML, which is not installed. Run: pip install pyyaml", file=sys.stderr)
        return 2
    try:
        with tempfile.TemporaryDirectory() as folder:
            package = read_package(options.source or download(Path(folder)))
        built = build(package)
        write(built, package, options.target)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    print(describe(built), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
