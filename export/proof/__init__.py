"""The proof room: is what the two model files compute what PyTorch computes?

Everything here judges bytes as they lie on disk and hands back frozen results; `report` alone renders them.
"""
