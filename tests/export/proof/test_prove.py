"""What is built beside a proof begins before the checks, and is a failure of loading if it can't be built."""

import pytest

from export.proof import prove as prove_module
from export.proof.prove import prove
from export.proof.runtimes import BACKENDS, Array, Backend, BackendError, Ids, Read, Runtime
from export.proof.runtimes.pt2 import shared_program
from export.pt2 import PT2_FILE
from tests.export.proof.subjects import make_batches


class Unbuilt(Runtime):
    """A backend whose compiler fails behind its back."""

    name = "unbuilt"

    def __init__(self, events: list[str]) -> None:
        self.events = events
        events.append("begun")

    def wait(self) -> None:
        self.events.append("awaited")
        raise BackendError("no space left")

    def run(self, input_ids: Ids, attention_mask: Ids) -> Array:
        raise AssertionError("it was never built")


def test_what_takes_a_compiler_is_built_while_the_checks_run(
    good: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    def load(_: Read) -> Runtime:
        return Unbuilt(events)

    def loaded_later(read: Read) -> Runtime:
        events.append("loaded")
        return BACKENDS[0].load(read)

    monkeypatch.setattr(prove_module, "check_files", lambda _: events.append("checked") or [])
    eager = Backend(name=BACKENDS[0].name, provider="cpu", file=None, load=loaded_later)
    unbuilt = Backend(name=Unbuilt.name, provider="cpu", file=PT2_FILE, load=load, compiled=True)
    batches, accuracy = make_batches(good)
    proof = prove(good.__getitem__, batches, backends=[eager, unbuilt], recorded_accuracy=accuracy)
    assert events == ["begun", "loaded", "checked", "awaited"]
    assert [(failure.backend, failure.where, failure.reason) for failure in proof.all_failures] == [
        ("unbuilt", "loading", "no space left")
    ]


def test_a_program_is_read_once_for_all_who_hold_it(good: dict[str, bytes]) -> None:
    held = shared_program(good[PT2_FILE])
    assert shared_program(bytes(bytearray(good[PT2_FILE]))) is held
