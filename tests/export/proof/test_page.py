"""The page of a proof: whole in itself, safe whatever stands in the data, and its failing cells tell their story."""

import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from export.contract import Limits
from export.proof import report
from export.proof.cases import build_grid
from export.proof.report.figures import number, percent
from export.proof.report.heatmap import lay_out
from export.proof.report.markup import Html, element, escape
from export.proof.report.rebuild import BACKEND, CASE, REBUILD
from tests.browser import Browser, needs_chromium, open_browser
from tests.export.proof.proofs import HOSTILE, REPRODUCTION, bad_proof, good_proof
from tests.export.proof.test_sabotage import scaled_weight_torchscript

# HTML elements that have no end.
_VOID = {"meta"}
HASHES = {"inputs": {"files": {"model.onnx": "0" * 64}, "test_split": "1" * 64, "record": "2" * 64, "source": "3" * 64}}


class Outline(HTMLParser):
    """Reads a page and refuses elements that are not closed in order; keeps tags, attributes, ids and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == [], self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), (tag, attrs)
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def render(proof: Any) -> str:
    return report.page({**report.document(proof), **HASHES})


PROOFS = {"good": good_proof(), "bad": bad_proof(), "hostile": bad_proof(HOSTILE, HOSTILE)}


@pytest.mark.parametrize("name", PROOFS)
def test_a_page_is_well_formed_and_asks_for_nothing(name: str) -> None:
    page = render(PROOFS[name])
    outline = Outline(page)
    ids = [value for key, value in outline.attributes if key == "id"]
    assert len(ids) == len(set(ids))
    assert not {key for key, _ in outline.attributes} & {"src", "href", "srcset", "action", "xlink:href", "data"}
    assert not [key for key, _ in outline.attributes if key.startswith("on")]
    assert not re.search(r"https?:|url\(|@import|@font-face|//", page.replace("// ", ""))
    assert "default-src 'none'" in page
    # One script of ours, and the data that it reads.
    assert outline.tags.count("script") == 2


def test_a_page_follows_from_the_document_alone() -> None:
    assert render(bad_proof()) == render(bad_proof())
    assert render(bad_proof()) != render(good_proof())


def test_hostile_text_stays_text() -> None:
    proof = PROOFS["hostile"]
    proof = replace(
        proof,
        skipped={HOSTILE: HOSTILE},
        versions={HOSTILE: HOSTILE},
        placements={HOSTILE: next(iter(proof.placements.values()))},
    )
    page = report.page({**report.document(proof), "inputs": {"files": {HOSTILE: HOSTILE}}})
    outline = Outline(page)
    assert outline.tags.count("script") == 2
    assert "<script>alert" not in page
    assert outline.text.count(HOSTILE) > 6


def test_a_good_page_says_what_was_shown_and_what_was_not() -> None:
    text = Outline(render(good_proof())).text
    assert (
        "Passed 3 backends compute the same function as PyTorch: no answer lies further from float64 than PyTorch's "
        "own rounding allows, on 6 inputs of the grid (4 backends), 20 drawn on the model as it is (2 backends), 16 "
        "drawn with weights × 8 (1 backend) and 30 rows of the test split (3 backends)."
    ) in text
    # The worst of all parts, not of the grid alone.
    assert "largest share of a limit 25 %, torchscript" in text
    assert "1 more, of a precision that is another function by design" in text
    assert "aot-inductor was not run: there is no C++ compiler (g++)." in text
    assert "CUDA was not asked for, and nothing is said about it." in text
    assert "The search on the model as it is was cut by the clock after 20 of 64 inputs." in text
    assert "Rounding decides 1 of 30 answers of the test split" in text
    assert "onnxruntime-cpu-all-int8: integer nodes on the CPU Shape shape_1 Shape shape_2" in text
    assert "model.onnx " + "0" * 64 in text
    assert "Every failure" not in text


def test_a_bad_page_says_what_failed_and_gives_the_program() -> None:
    outline = Outline(render(bad_proof()))
    assert "Failed 1 backend of 4 and 2 checks of the files failed: 6 failures in all." in outline.text
    assert "The check of the files 'fresh export' was not made: the files were exported by torch 2.12." in outline.text
    assert "Not made: the files were exported by torch 2.12" in outline.text
    assert "encoder.blocks.1 , operator aten::add: error 1.0 · 10⁻³, limit 1.1 · 10⁻⁶" in outline.text
    assert "B3-T7-ones, right padding (1 columns): shape (3, 4), wanted (3, 5)" in outline.text
    assert REPRODUCTION in outline.words


def test_a_page_without_any_answer_still_says_why() -> None:
    empty = replace(bad_proof(), parity=None, invariances=(), searches=(), task=None, placements={}, counterexamples=())
    text = Outline(render(empty)).text
    assert "Eager PyTorch itself could not run, so no answer was compared." in text
    assert "No inputs were drawn at random." in text


def test_cells_are_laid_out_by_length_batch_and_mask() -> None:
    cases = report.document(good_proof())["parity"]["cases"]
    batches, blocks = lay_out(cases)
    assert batches == [1, 2]
    assert [(block.title, block.columns) for block in blocks] == [
        ("2", ["ones", "one-token"]),
        ("70", ["ones", "all-empty"]),
        ("every id", [""]),
    ]
    assert [block.cells for block in blocks] == [[[0, None], [3, 4]], [[1, 2], [None, None]], [[5], [None]]]


def test_every_case_of_the_grid_has_one_cell() -> None:
    grid = build_grid(Limits(max_length=64, vocab_size=5000))
    cases = [
        {"name": case.name, "batch": len(case.input_ids), "length": case.input_ids.shape[1], "pattern": pattern}
        for case in grid
        for pattern in [case.name.split("-", 2)[-1]]
    ]
    _, blocks = lay_out(cases)
    shown = [case for block in blocks for row in block.cells for case in row if case is not None]
    assert sorted(shown) == list(range(len(grid)))
    assert {len(row) for block in blocks for row in block.cells} == {len(block.columns) for block in blocks}


def test_a_cell_shows_the_share_of_the_limit_and_failure_not_by_colour_alone() -> None:
    page = render(bad_proof())
    (second,) = re.findall(r'<tbody data-backend="1">.*?</tbody>', page)
    assert re.findall(r'<td class="([a-z0-9 ]+)" data-case="(\d)">', second) == [
        ("q2", "0"),
        ("q2", "1"),
        ("bad none", "2"),
        ("q2", "5"),
        ("bad", "3"),
        ("q1", "4"),
    ]
    (int8,) = re.findall(r'<tbody data-backend="2">.*?</tbody>', page)
    assert set(re.findall(r'<td class="([a-z0-9 ]+)" data-case', int8)) == {"free"}
    (reference,) = re.findall(r'<tbody data-backend="3">.*?</tbody>', page)
    assert reference.count('<td class="out"') == 2


@pytest.mark.parametrize(
    ("value", "told"),
    [(None, "–"), (0.0, "0"), (9.15, "9.15"), (0.0123, "0.0123"), (3.14e-7, "3.1 · 10⁻⁷"), (5e4, "5.0 · 10⁴")],
)
def test_numbers_are_written_for_people(value: float | None, told: str) -> None:
    assert number(value) == told


def test_a_share_above_ten_is_a_factor() -> None:
    assert (percent(0.176), percent(0.9975, 2), percent(3297.0), percent(None)) == ("18 %", "99.75 %", "× 3,297", "–")


def test_markup_escapes_what_is_not_markup() -> None:
    assert element("b", "<", Html("<i></i>"), class_='"', title=None) == '<b class="&quot;">&lt;<i></i></b>'
    assert escape(Html("<i>")) == "<i>"


def test_the_program_that_builds_a_case_again_runs(good: dict[str, bytes], tmp_path: Path) -> None:
    files = dict(good)
    scaled_weight_torchscript(files)
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    program = REBUILD.replace(CASE, '"B3-T7-holes"').replace(BACKEND, '"torchscript"')
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(program.replace("runs/default", str(tmp_path)), {})
    # Thousands of roundings: the fault, and not the healthy difference.
    assert 1e-3 < float(printed.getvalue()) < 1


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with open_browser(tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.fixture
def bad_page(tmp_path: Path) -> Path:
    path = tmp_path / "bad page.html"
    path.write_text(render(PROOFS["hostile"]), "utf-8")
    return path


@needs_chromium
def test_a_failing_cell_opens_and_gives_its_reproduction(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "verification.html"
    path.write_text(render(bad_proof()), "utf-8")
    browser.open(path)
    assert browser.evaluate("document.getElementById('detail').open") is False
    browser.click('tbody[data-backend="1"] td[data-case="3"]')
    assert browser.evaluate("document.getElementById('detail').open") is True
    assert browser.evaluate("document.getElementById('detail-title').innerText") == "torchscript on B2-T2-ones"
    assert browser.evaluate("document.getElementById('detail-reason').innerText") == "error 4.56e-03, limit 1.18e-05"
    assert browser.evaluate("document.querySelector('#detail-example pre').textContent") == REPRODUCTION
    assert "encoder.blocks.1" in browser.evaluate("document.getElementById('detail-example').innerText")
    rebuild = browser.evaluate("document.getElementById('detail-rebuild').textContent")
    assert rebuild == REBUILD.replace(CASE, '"B2-T2-ones"').replace(BACKEND, '"torchscript"')
    browser.click("#close")
    assert browser.evaluate("document.getElementById('detail').open") is False
    # Nothing was asked for but the file itself, and nothing was complained of.
    assert browser.requests == [path.as_uri()]
    assert browser.complaints == []


@needs_chromium
def test_a_reproduction_is_copied_with_one_click(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "verification.html"
    path.write_text(render(bad_proof()), "utf-8")
    browser.open(path)
    browser.click("#counterexample-0 .copy")
    assert browser.evaluate("new Promise((done) => setTimeout(done, 100))") is None
    assert browser.evaluate("document.querySelector('#counterexample-0 .copy').textContent") == "Copied"
    assert browser.evaluate("getSelection().toString()").split() == REPRODUCTION.split()


@needs_chromium
def test_the_cells_are_walked_and_opened_by_keyboard(browser: Browser, bad_page: Path) -> None:
    browser.open(bad_page)
    assert browser.evaluate("document.querySelectorAll('#map td[tabindex=\"0\"]').length") == 1
    browser.evaluate("document.querySelector('#map td[tabindex=\"0\"]').focus()")
    reading = "document.getElementById('reading').innerText"
    assert "torchscript · B1-T70-all-empty · no comparable answer · failed, open for more" in browser.evaluate(reading)
    browser.press("ArrowLeft")
    assert browser.evaluate(reading) == "torchscript · B1-T70-ones · error 2.0e-6, 17 % of the limit"
    browser.press("Enter")
    assert browser.evaluate("document.getElementById('detail').open") is False
    browser.press("ArrowRight")
    browser.press("Enter")
    assert browser.evaluate("document.getElementById('detail').open") is True
    assert browser.evaluate("document.getElementById('detail-reason').innerText") == "5 of 5 values are not finite"
    browser.evaluate("document.getElementById('detail').close()")
    for _ in range(2):
        browser.press("ArrowDown")
    assert browser.evaluate("document.activeElement.dataset.case") == "2"


@needs_chromium
def test_hostile_text_runs_nowhere_and_is_shown(browser: Browser, bad_page: Path) -> None:
    browser.open(bad_page)
    browser.click('tbody[data-backend="1"] td[data-case="3"]')
    assert browser.evaluate("document.getElementById('detail-reason').textContent") == HOSTILE
    assert browser.evaluate("document.querySelector('#detail-example pre').textContent") == HOSTILE
    assert browser.evaluate("document.scripts.length") == 2
    assert browser.complaints == []


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_page_fits_a_telephone_and_a_desk_by_day_and_by_night(
    browser: Browser, bad_page: Path, width: int, scheme: str
) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.send("Emulation.setDeviceMetricsOverride", **size)
    browser.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.open(bad_page)
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    paper = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") is (scheme == "light")
    browser.send("Emulation.clearDeviceMetricsOverride")
