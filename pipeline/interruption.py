"""The wish to stop: a signal during training is noted, and heard once the step is done and the state written."""

import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any, Self

from export.errors import FerryError

# SIGHUP: the terminal was closed. Windows has none.
_NAMES = tuple(name for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class StoppedError(FerryError):
    """A signal ended the training before its end, and its state was written."""

    def __init__(self, message: str, *, signal_number: int) -> None:
        super().__init__(message)
        # What a shell reports of a process that a signal has ended.
        self.exit_code = 128 + signal_number


class Interruption:
    """Notes SIGINT, SIGTERM and SIGHUP instead of ending the process; a second SIGINT ends it at once.

    Has no effect outside the main thread, where Python hands no signals out. A signal that was ignored before, as
    `nohup` does with SIGHUP, stays ignored.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._before: dict[str, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for name in _NAMES:
                number = getattr(signal, name)
                # None: the handler was not installed from Python, and could not be put back.
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[name] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, handler in self._before.items():
            signal.signal(getattr(signal, name), handler)
        self._before.clear()
        if self.signal is not None and error is None:
            # It came too late to be heard inside.
            signal.raise_signal(self.signal)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            sys.exit(128 + number)
        self.signal = self.signal or signal.Signals(number)
