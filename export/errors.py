"""Failures that a person must hear of in a sentence: tried, and it is wrong. (Asked wrongly is ValueError.)"""


class FerryError(Exception):
    """Something was tried and is wrong; the message says what, and what to do next."""
