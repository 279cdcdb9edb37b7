"""ONNX Runtime for everybody: one set of options, on the CPU, with two threads."""

import onnxruntime as ort

THREADS = 2
_ERRORS_ONLY = 3


def session_options() -> ort.SessionOptions:
    """Return the options of every session that is timed.

    Threads wait for work by spinning, as by default, but no longer than their session answers: they would take a core
    from the candidate that comes next.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return options
