"""Texts with labels: the data sets that Ferry trains on, and the baseline that they are measured against."""
