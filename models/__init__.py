"""Transformer encoders in pure PyTorch that script and export as they stand.

The legend of dimensions, used in every file of this room:

    B  batch                 C  model width (dim)          V  vocabulary
    T  queries, tokens       H  heads                      F  feed-forward width (hidden_dim)
    S  keys                  D  width of one head          N  packed tokens: the kept tokens of all rows, in order
    Dv  width of one head's values, where it differs from D
    L  tokens of a batch's longest row

This room reads and writes no files; it knows torch and the standard library only.
"""
