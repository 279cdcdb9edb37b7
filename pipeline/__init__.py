"""The five stages and their command line: the only place with clocks, progress bars and click."""
