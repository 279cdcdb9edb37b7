"""What leaves the house: the contract, the two model files, the proof that they are right, and the artifact.

Depends on `models` and on torch, onnx and onnxruntime; never on `pipeline`.
"""

__version__ = "0.1.0"
