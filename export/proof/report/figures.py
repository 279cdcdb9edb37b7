"""Numbers as the page writes them."""

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
NOTHING = "–"


def number(value: float | None) -> str:
    """Write 3.1e-07 as 3.1 · 10⁻⁷, and what is neither large nor small as it is."""
    if value is None:
        return NOTHING
    if value == 0 or 1e-2 <= abs(value) < 1e4:
        return f"{value:.3g}" if abs(value) < 1e3 else f"{value:,.0f}"
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    return f"{mantissa} · {power_of_ten(int(exponent))}"


def power_of_ten(exponent: int) -> str:
    return "10" + str(exponent).translate(_SUPERSCRIPTS)


def share(value: float | None, limit: float | None) -> float | None:
    """Return which share of its limit a value uses; None where there is no limit or no value."""
    return value / limit if value is not None and limit else None


def percent(value: float | None, digits: int = 0) -> str:
    """Write a share; one of more than ten is a factor."""
    if value is None:
        return NOTHING
    return f"{100 * value:.{digits}f} %" if value <= 10 else f"× {number(value)}"


def count(amount: int, noun: str, plural: str = "") -> str:
    """Write 1 row, 2 rows, 1,692 rows."""
    return f"{amount:,} {noun if amount == 1 else plural or noun + 's'}"
