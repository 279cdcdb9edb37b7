"""Labelled data: the sets that come with Ferry, users' own files, and the baseline that encoders must beat."""
