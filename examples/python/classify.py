"""Classify texts with a Ferry artifact, from the command line."""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ferry_artifact import BATCH_SIZE, Artifact, ArtifactError, decode_text

HELP = """\
Usage: classify ARTIFACT [TEXT ...]
       classify ARTIFACT --self-test

Classify texts with a Ferry artifact: one line for each, LABEL, a tab, PROBABILITY.
Without a TEXT, each line of standard input is one.

  --self-test  replay the artifact's goldens and say whether every answer agrees
  --threads N  compute with N threads, 1 without it
  --help       show this help
  --           texts that begin with '-' come after this

Exit status: 0 every text was answered, 1 the artifact or a text is wrong, 2 the command line is.
"""
CHUNK_BYTES = 65536
MAX_THREADS = 1024


class UsageError(Exception):
    """The command line is wrong."""


class Options(NamedTuple):
    """What the command line asks for."""

    artifact: str
    texts: list[bytes]
    self_test: bool
    threads: int


def main() -> int:
    # A closed pipe or Ctrl-C ends a filter quietly.
    for name in ("SIGPIPE", "SIGINT"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        options = parse_options(sys.argv[1:])
        if options is None:
            write(HELP)
            return 0
        if not os.path.isdir(options.artifact):
            raise UsageError(f"{options.artifact} is not a folder; give the folder of an artifact.")
        artifact = Artifact(options.artifact, threads=options.threads)
        if options.self_test:
            return self_test(artifact)
        number = 1
        for batch in read_batches(options.texts):
            classify(artifact, batch, first=number)
            number += len(batch)
    except UsageError as error:
        print(f"classify: {error} See --help.", file=sys.stderr)
        return 2
    except (ArtifactError, ValueError, OSError) as error:
        print(f"classify: {error}", file=sys.stderr)
        return 1
    return 0


def parse_options(arguments: Sequence[str]) -> Options | None:
    """Return what the command line asks for; None stands for --help.

    Raises:
        UsageError: if it can't be understood.
    """
    positional: list[str] = []
    self_test, threads = False, 1
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            positional.extend(rest)
        elif argument in ("-h", "--help"):
            return None
        elif argument == "--self-test":
            self_test = True
        elif argument == "--threads":
            threads = parse_threads(next(rest, ""))
        elif argument.startswith("-"):
            raise UsageError(f"{argument} is not an option; put -- before texts that begin with '-'.")
        else:
            positional.append(argument)
    if not positional:
        raise UsageError("ARTIFACT is missing; give the folder of an artifact.")
    if self_test and len(positional) > 1:
        raise UsageError("--self-test takes no texts; give one or the other.")
    return Options(positional[0], [os.fsencode(text) for text in positional[1:]], self_test, threads)


def parse_threads(value: str) -> int:
    if not (value.isascii() and value.isdecimal() and 1 <= int(value[:9]) <= MAX_THREADS and len(value) <= 9):
        raise UsageError(f"--threads must be a whole number from 1 to {MAX_THREADS}; got '{value}'.")
    return int(value)


def read_batches(texts: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Yield the texts, or the lines of standard input as they arrive, at most `BATCH_SIZE` at a time.

    Lines are never held back until a batch is full, and memory holds no more than a chunk and the line that it ends in.
    """
    if texts:
        yield from split_batches(texts)
        return
    begun: list[bytes] = []
    while chunk := read_chunk():
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join(begun) + lines[0]
            begun = []
        begun.append(rest)
        yield from split_batches(lines)
    # A final newline ends a text and begins none.
    if last := b"".join(begun):
        yield [last]


def read_chunk() -> bytes:
    if sys.stdin is None:
        raise OSError("standard input can't be read: it is closed.")
    try:
        return os.read(0, CHUNK_BYTES)
    except OSError as error:
        raise OSError(f"standard input can't be read: {error.strerror}.") from None


def split_batches(texts: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for start in range(0, len(texts), BATCH_SIZE):
        yield texts[start : start + BATCH_SIZE]


def classify(artifact: Artifact, batch: Sequence[bytes], *, first: int) -> None:
    """Print one line for each text; `first` is the number of the first, for messages.

    Raises:
        ValueError: if a text is not valid UTF-8; the texts before it are answered.
    """
    texts: list[str] = []
    failure = None
    for number, raw in enumerate(batch, start=first):
        try:
            texts.append(decode_text(raw))
        except ValueError as error:
            failure = ValueError(f"text {number}: {error}")
            break
    lines = []
    for number, answer in enumerate(artifact.classify(texts), start=first):
        if answer.dropped:
            print(
                f"classify: text {number} is too long: the model read its first {artifact.max_pieces} pieces "
                f"and not the {answer.dropped} after them.",
                file=sys.stderr,
            )
        lines.append(f"{answer.label}\t{answer.probability:.6f}\n")
    write("".join(lines))
    if failure:
        raise failure


def self_test(artifact: Artifact) -> int:
    result = artifact.self_test()
    for failure in result.failures:
        print(f"self-test: {failure}", file=sys.stderr)
    if result.failures:
        return 1
    write(
        f"self-test: {result.texts} texts and {result.batches} batches agree, "
        f"largest difference {result.largest_difference:.1e}\n"
    )
    return 0


def write(text: str) -> None:
    try:
        sys.stdout.buffer.write(text.encode())
        sys.stdout.buffer.flush()
    except OSError as error:
        # Python would try again, and complain, when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        raise OSError(f"standard output can't be written: {error.strerror}.") from None


if __name__ == "__main__":
    sys.exit(main())
