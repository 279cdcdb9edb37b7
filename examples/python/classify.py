"""Classify texts with a Ferry artifact, from the command line."""

import os
import signal
import sys
from collections.abc import Sequence
from typing import NamedTuple

from ferry_artifact import TOKEN_CLASSIFICATION, Answer, Artifact, ArtifactError, Tags, decode_text
from json_mode import answer_request
from streams import complain, read_batches, split_batches, write

HELP = """\
Usage: classify ARTIFACT [TEXT ...]
       classify ARTIFACT --json
       classify ARTIFACT --self-test

Classify texts with a Ferry artifact: one line for each, LABEL, a tab, PROBABILITY. LABEL is empty where no label is
probable enough. An artifact that tags words gives a line for each word, WORD, a tab, LABEL, a tab, PROBABILITY, and an
empty line after each text. Without a TEXT, each line of standard input is one.

  --json       each line of standard input is a request, {"text": "..."} or {"input_ids": [[...]],
               "attention_mask": [[...]]}, and each line of output its answer in JSON
  --self-test  replay the artifact's goldens and say whether every answer agrees
  --threads N  compute with N threads, 1 without it
  --public-key FILE
               require a signature by this key in PEM, and verify it before any model is loaded
  --signature FILE
               its file; without it, <name>-<version>.sig beside ARTIFACT
  --help       show this help
  --           texts that begin with '-' come after this

Exit status: 0 every text was answered, 1 the artifact or a text is wrong, 2 the command line is.
"""
MAX_THREADS = 1024


class UsageError(Exception):
    """The command line is wrong."""


class Options(NamedTuple):
    """What the command line asks for."""

    artifact: str
    texts: list[bytes]
    self_test: bool
    json: bool
    threads: int
    public_key: str | None
    signature: str | None


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
        artifact = Artifact(
            options.artifact,
            threads=options.threads,
            public_key=options.public_key,
            signature=options.signature,
        )
        if options.self_test:
            return self_test(artifact)
        if options.json:
            return answer_requests(artifact)
        number = 1
        for batch in split_batches(options.texts) if options.texts else read_batches():
            answer_texts(artifact, batch, first=number)
            number += len(batch)
    except UsageError as error:
        complain(f"classify: {error} See --help.")
        return 2
    except (ArtifactError, ValueError, OSError) as error:
        complain(f"classify: {error}")
        return 1
    return 0


def parse_options(arguments: Sequence[str]) -> Options | None:
    """Return what the command line asks for; None stands for --help.

    Raises:
        UsageError: if it can't be understood.
    """
    positional: list[str] = []
    self_test, json, threads = False, False, 1
    files: dict[str, str] = {}
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            positional.extend(rest)
        elif argument in ("-h", "--help"):
            return None
        elif argument == "--self-test":
            self_test = True
        elif argument == "--json":
            json = True
        elif argument == "--threads":
            threads = parse_threads(next(rest, ""))
        elif argument in ("--public-key", "--signature"):
            files[argument] = next(rest, "")
            if not files[argument]:
                raise UsageError(f"{argument} takes the name of a file.")
        elif argument.startswith("-"):
            raise UsageError(f"{argument} is not an option; put -- before texts that begin with '-'.")
        else:
            positional.append(argument)
    if not positional:
        raise UsageError("ARTIFACT is missing; give the folder of an artifact.")
    if self_test and json:
        raise UsageError("--self-test takes no requests; give it or --json.")
    if self_test and len(positional) > 1:
        raise UsageError("--self-test takes no texts; give one or the other.")
    if json and len(positional) > 1:
        raise UsageError("--json takes no texts; write requests to standard input.")
    public_key, signature = files.get("--public-key"), files.get("--signature")
    if signature is not None and public_key is None:
        raise UsageError("--signature takes a --public-key to verify it with.")
    texts = [os.fsencode(text) for text in positional[1:]]
    return Options(positional[0], texts, self_test, json, threads, public_key, signature)


def parse_threads(value: str) -> int:
    if not (value.isascii() and value.isdecimal() and 1 <= int(value[:9]) <= MAX_THREADS and len(value) <= 9):
        raise UsageError(f"--threads must be a whole number from 1 to {MAX_THREADS}; got '{value}'.")
    return int(value)


def answer_texts(artifact: Artifact, batch: Sequence[bytes], *, first: int) -> None:
    """Print the answers; `first` is the number of the first text, for messages.

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
    answers = ask(artifact, texts)
    for number, answer in enumerate(answers, start=first):
        if answer.dropped:
            complain(
                f"classify: text {number} is too long: the model read its first {artifact.max_pieces} pieces "
                f"and not the {answer.dropped} after them."
            )
    write("".join(map(describe, answers)))
    if failure:
        raise failure


def ask(artifact: Artifact, texts: Sequence[str]) -> Sequence[Answer | Tags]:
    if artifact.task == TOKEN_CLASSIFICATION:
        return artifact.tag(texts)
    return artifact.classify(texts)


def describe(answer: Answer | Tags) -> str:
    if isinstance(answer, Tags):
        return (
            "".join(f"{word}\t{label or ''}\t{probability:.6f}\n" for word, label, probability in answer.words) + "\n"
        )
    return f"{answer.label or ''}\t{answer.probability:.6f}\n"


def answer_requests(artifact: Artifact) -> int:
    failed = False
    for lines in read_batches():
        for line in lines:
            reply = answer_request(artifact, line)
            failed = failed or reply.failed
            write(f"{reply.json}\n")
    return 1 if failed else 0


def self_test(artifact: Artifact) -> int:
    result = artifact.self_test()
    for failure in result.failures:
        complain(f"self-test: {failure}")
    if result.failures:
        return 1
    write(
        f"self-test: {result.texts} texts and {result.batches} batches agree, "
        f"largest difference {result.largest_difference:.1e}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
