"""Inference on the CPU, ours against what a user would pick instead, all in one run: `python -m benchmarks.inference`.

Every candidate answers the same batches with two threads, one candidate at a time, in a random order that is drawn anew
for each repetition; a ratio compares two candidates within a repetition, so that a machine that slows down slows both.
"""
