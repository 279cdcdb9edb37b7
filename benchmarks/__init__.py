"""Measurements whose results are committed: what a claim of the README or a constant of the code rests on."""
