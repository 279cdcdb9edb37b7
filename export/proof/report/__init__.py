"""A proof as text for a terminal, as a document for verification.json, and as a page for a browser.

Renders only: nothing is judged here. None of the three holds a clock value, and numbers are rounded, so that one model
gives one text. The page is made of the document alone.
"""

from export.proof.report.document import FAILED, NOT_VERIFIED, PASSED, VERIFIED, document
from export.proof.report.page import page
from export.proof.report.text import text

__all__ = ["FAILED", "NOT_VERIFIED", "PASSED", "VERIFIED", "document", "page", "text"]
