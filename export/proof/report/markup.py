"""Building HTML so that nothing that comes from data can become markup: what is not `Html` is escaped."""

import html
from collections.abc import Iterable, Sequence


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def escape(text: str) -> Html:
    """Make text safe between tags and in quoted attributes; markup stays as it is."""
    return text if isinstance(text, Html) else Html(html.escape(text))


def join(parts: Iterable[str], separator: str = "") -> Html:
    return Html(separator.join(escape(part) for part in parts))


def element(name: str, *children: str, **attributes: str | int | float | None) -> Html:
    """Build an element.

    Args:
        name: the tag.
        children: text, which is escaped, or `Html`.
        attributes: `class_` is class, `data_case` is data-case; None leaves an attribute out.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{written}>{join(children)}</{name}>")


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Iterable[int] = (), class_: str = "") -> Html:
    """Build a table that scrolls by itself where it is too wide; the first cell of a row is its heading.

    Args:
        head: the headings of the columns.
        rows: the cells, text or `Html`.
        numbers: which columns hold numbers, and stand to the right.
        class_: a class of the table.
    """
    kinds = dict.fromkeys(numbers, "number")
    columns = join(element("th", cell, scope="col", class_=kinds.get(i)) for i, cell in enumerate(head))
    body = join(
        element(
            "tr",
            element("th", row[0], scope="row"),
            *(element("td", cell, class_=kinds.get(i)) for i, cell in enumerate(row[1:], 1)),
        )
        for row in rows
    )
    parts = element("thead", element("tr", columns)), element("tbody", body)
    return element("div", element("table", *parts, class_=class_ or None), class_="scroll", tabindex=0)
