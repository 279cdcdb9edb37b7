"""Requests for the JSON mode, made from a seed: good ones, odd ones, and ones with every fault we know."""

import json
import random
import sys
import unicodedata
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

WORDS = (
    "the",
    "licence",
    "Licensed",
    "under",
    "MIT",
    "Apache-2.0",
    "copyright",
    "(c)",
    "2024",
    "Jane",
    "x",
    "http://a.b/c?d",
)
WHITE_SPACE = (" ", "  ", "\t", "\n", "\v", "\f", "\r", "\r\n", "\0", "\0\0", " \0 ")
# White space to Unicode, Python or JavaScript, and not to the contract.
OTHER_SPACE = (
    "\x1c",
    "\x1d",
    "\x1e",
    "\x1f",
    "\x85",
    "\u00a0",
    "\u1680",
    "\u2007",
    "\u2028",
    "\u2029",
    "\u3000",
    "\ufeff",
)
SPECIALS = (
    *(
        "<s>",
        "</s>",
        "<cls>",
        "<sep>",
        "<pad>",
        "<unk>",
        "<mask>",
        "<0x41>",
        "<0x00>",
        "\u2581",
        "\u2581\u2581",
        "\u2585",
    ),
    *(
        "\x01",
        "\x7f",
        "\x80",
        "\ufffd",
        "\ufffe",
        "\uffff",
        "\U0001fffe",
        "\U0010ffff",
        '"',
        "\\",
        "/",
        "{",
        "]",
        "\\u0041",
    ),
)
EMOJI = (
    *("\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1ea\U0001f1fa", "1\ufe0f\u20e3", "\U0001f44d\U0001f3fd"),
    *("\u2764\ufe0f", "\U0001f3f4\U000e0067\U000e0062\U000e007f", "\U0001f600"),
)
RIGHT_TO_LEFT = ("שלום", "مرحبا", "\u200f", "\u202e", "\u2067", "\u2069", "עִבְרִית", "٣٤")
SURROGATES = [chr(code) for code in (0xD800, 0xDBFF, 0xDC00, 0xDFFF, 0xD83D, 0xDE00)]
# What is pasted into a request to spoil it.
JSON_PARTS = (
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b'"',
        b"\\",
        b"\\u",
        b"\\ud800",
        b"\\u0000",
        b"null",
        b"true",
        b"false",
        b"0",
    ),
    *(
        b"-",
        b"-0",
        b"1.0",
        b"1e2",
        b"1e400",
        b"-1e400",
        b"1e-400",
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"01",
        b"+1",
        b".5",
    ),
    *(b"9223372036854775807", b"9223372036854775808", b"18446744073709551615", b"18446744073709551616", b"9" * 400),
    *(b"\x00", b"\x01", b"\x1f", b"\x7f", b"\r", b"\t", b" ", b"\xef\xbb\xbf", b"\xff", b"\xc0\x80", b"\xed\xa0\x80"),
    *(b"//", b"/**/", b"'", b'{"text":"a"}', b'"text":', b"[" * 70, b'{"a":' * 70),
)

WRONG_VALUES = (
    *(-1, 2, 2**31, 2**63 - 1, 2**63, 2**64, -(2**63), -(2**63) - 1, 10**30, 0.0, -0.0, 1.0, 1e300, True, False, None),
    *("1", [1], [], {"a": 1}),
)
JSON_VALUES = (
    *(
        b"null",
        b"true",
        b"-0",
        b"1.5e3",
        b"9223372036854775808",
        b'""',
        b'"text"',
        b"[]",
        b"[[]]",
        b"[[[]]]",
        b"[1]",
        b"{}",
    ),
    *(b"[[1]]", b" [ [ 1 , 2 ] ] ", b'{"":""}', b"[" * 63 + b"]" * 63, b"[" * 64 + b"]" * 64, b"[" * 65 + b"]" * 65),
)


class Limits(NamedTuple):
    """The ids and the sequences that the model takes."""

    max_id: int
    max_length: int


def make_requests(seed: int, count: int, limits: Limits) -> list[bytes]:
    """Make requests, one a line and without the line feed."""
    generator = random.Random(seed)
    kinds: list[tuple[int, Callable[[], bytes]]] = [
        (13, lambda: text_request(generator)),
        (2, lambda: ids_request(generator, limits)),
        (3, lambda: wrong_ids_request(generator, limits)),
        (1, lambda: wrong_kind_request(generator)),
        (3, lambda: spoilt(generator, limits)),
    ]
    chosen = generator.choices([make for _, make in kinds], [weight for weight, _ in kinds], k=count)
    # A line feed ends a request, so inside one it becomes another byte that JSON does not take.
    return [make().replace(b"\n", b"\x0b") for make in chosen]


def text_request(generator: random.Random) -> bytes:
    return b'{"text":' + escape(generator, make_text(generator)) + b"}"


def make_text(generator: random.Random) -> str:
    """Make a text; one in ten holds a surrogate alone."""
    parts = [generator.choice(TEXT_KINDS)(generator) for _ in range(generator.choice((0, 1, 1, 2, 3)))]
    if generator.random() < 0.1:
        parts.insert(
            generator.randint(0, len(parts)), "".join(generator.choices(SURROGATES, k=generator.randint(1, 3)))
        )
    return generator.choice(("", " ", generator.choice(WHITE_SPACE))).join(parts)


def words(generator: random.Random) -> str:
    return "".join(generator.choice(WORDS) + generator.choice(WHITE_SPACE) for _ in range(generator.randint(1, 12)))


def spaces(generator: random.Random) -> str:
    return "".join(generator.choice((*WHITE_SPACE, *OTHER_SPACE, "a")) for _ in range(generator.randint(1, 12)))


def specials(generator: random.Random) -> str:
    return "".join(generator.choice((*SPECIALS, *WORDS, " ")) for _ in range(generator.randint(1, 8)))


def one_category(generator: random.Random) -> str:
    characters = categories()[generator.choice(sorted(categories()))]
    return "".join(generator.choice(characters) for _ in range(generator.randint(1, 12)))


def any_characters(generator: random.Random) -> str:
    highest = generator.choice((0x7F, 0x7FF, 0xFFFF, sys.maxunicode))
    codes = (generator.randint(0, highest) for _ in range(generator.randint(1, 30)))
    return "".join(chr(code) for code in codes if not 0xD800 <= code <= 0xDFFF)


def combining_run(generator: random.Random) -> str:
    marks = [*categories()["Mn"], *categories()["Me"]]
    return generator.choice("aeé日") + "".join(generator.choice(marks) for _ in range(generator.randint(1, 60)))


def pictures_and_directions(generator: random.Random) -> str:
    return "".join(generator.choice((*EMOJI, *RIGHT_TO_LEFT, " ", "a")) for _ in range(generator.randint(1, 10)))


def long_run(generator: random.Random) -> str:
    return generator.choice((*WORDS, *SPECIALS, *WHITE_SPACE, *EMOJI)) * generator.choice((2, 30, 700))


# Words are the likeliest.
TEXT_KINDS = (
    words,
    words,
    spaces,
    specials,
    one_category,
    any_characters,
    combining_run,
    pictures_and_directions,
    long_run,
)


@cache
def categories() -> dict[str, list[str]]:
    """Every character but the surrogates, by its general category."""
    found = defaultdict(list)
    for code in range(sys.maxunicode + 1):
        found[unicodedata.category(chr(code))].append(chr(code))
    del found["Cs"]
    return found


def escape(generator: random.Random, text: str) -> bytes:
    """Write a text as a JSON string, each character in one of the ways that JSON has for it."""
    how_often = generator.choice((0, 0.1, 1))
    short = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    written = []
    for character in text:
        must = character in '"\\' or character < " " or 0xD800 <= ord(character) <= 0xDFFF
        if not must and generator.random() >= how_often:
            written.append(character)
        elif character in short and generator.random() < 0.8:
            written.append(short[character])
        else:
            units = character.encode("utf-16-be", "surrogatepass").hex()
            units = generator.choice((units, units.upper()))
            written += [f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4)]
    return f'"{"".join(written)}"'.encode()


def ids_request(generator: random.Random, limits: Limits) -> bytes:
    input_ids, attention_mask = make_batch(generator, limits)
    return json.dumps({"input_ids": input_ids, "attention_mask": attention_mask}).encode()


def make_batch(generator: random.Random, limits: Limits) -> tuple[list[list[Any]], list[list[Any]]]:
    batch, length = generator.randint(1, 4), generator.randint(1, limits.max_length)
    input_ids = [[generator.randint(0, limits.max_id) for _ in range(length)] for _ in range(batch)]
    fill = generator.random()
    return input_ids, [[int(generator.random() < fill) for _ in range(length)] for _ in range(batch)]


def wrong_ids_request(generator: random.Random, limits: Limits) -> bytes:
    """A batch with a fault, or with two."""
    input_ids, attention_mask = make_batch(generator, limits)
    request: dict[str, Any] = {"input_ids": input_ids, "attention_mask": attention_mask}
    if generator.random() < 0.3:
        # Both alike, so that their shapes agree and what the model takes is asked next.
        length = generator.choice((0, limits.max_length + 1, 999))
        rows = [[1] * length] * generator.choice((0, 1, 3))
        return json.dumps(dict.fromkeys(request, rows)).encode()
    for _ in range(generator.choice((1, 1, 2))):
        rows = request[generator.choice(list(request))]
        wrong_value = generator.choice((limits.max_id + 1, -1, 2, generator.choice(WRONG_VALUES)))
        if not (isinstance(rows, list) and rows and isinstance(rows[0], list) and rows[0]):
            continue
        row = generator.randrange(len(rows))
        spoil = generator.choice(("value", "value", "value", "row", "ragged", "short", "nested", "keys"))
        if spoil == "value" and isinstance(rows[row], list) and rows[row]:
            rows[row][generator.randrange(len(rows[row]))] = wrong_value
        elif spoil == "row":
            rows[row] = wrong_value
        elif spoil == "ragged" and isinstance(rows[row], list):
            rows[row] = rows[row][1:]
        elif spoil == "short":
            del rows[row:]
        elif spoil == "nested":
            rows[:] = [list(rows)]
        elif spoil == "keys":
            request.pop(generator.choice(list(request)))
            request[generator.choice(("text", "Input_ids", "", "\u00e9\x7f\U0001f600", "ids"))] = wrong_value
    return json.dumps(request).encode()


def wrong_kind_request(generator: random.Random) -> bytes:
    """Valid JSON that is no request, or one whose values are of another kind, or are given twice."""
    value = generator.choice(JSON_VALUES)
    return generator.choice(
        (
            value,
            b'{"text":' + value + b"}",
            b'{"input_ids":' + value + b',"attention_mask":' + generator.choice(JSON_VALUES) + b"}",
            b'{"text":' + value + b',"text":"again"}',
            b'{"text":{"b":1,"a":1,"a":2,"b":3},"text":' + value + b"}",
        )
    )


def spoilt(generator: random.Random, limits: Limits) -> bytes:
    """Bytes at random, or a good request with some of its bytes exchanged."""
    if generator.random() < 0.1:
        return generator.randbytes(generator.randint(0, 40))
    make = generator.choice((text_request, text_request, lambda g: ids_request(g, limits)))
    line = bytearray(make(generator)[: generator.choice((60, 400))] if generator.random() < 0.2 else make(generator))
    for _ in range(generator.choice((1, 1, 2, 4))):
        at = generator.randint(0, len(line))
        spoil = generator.choice(("paste", "paste", "paste", "cut", "byte", "bit", "twice", "swap"))
        if spoil == "paste":
            line[at:at] = generator.choice(JSON_PARTS)
        elif spoil == "cut":
            del line[at : at + generator.randint(1, 8)]
        elif spoil == "byte":
            line[at : at + 1] = generator.randbytes(1)
        elif spoil == "bit" and at < len(line):
            line[at] ^= 1 << generator.randrange(8)
        elif spoil == "twice":
            line[at:at] = line[at : at + generator.randint(1, 30)]
        elif spoil == "swap":
            line[:] = line[at:] + line[:at]
    return bytes(line)
