"""A headless Chromium, driven over a pipe in its own protocol: what a test of a page needs, and no more."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (apt-get install chromium)")
# Chromium reads commands from this descriptor and answers on the next.
_READS, _WRITES = 3, 4


class Browser:
    """One page of a running Chromium."""

    def __init__(self, answers: IO[bytes], commands: IO[bytes]) -> None:
        self._answers, self._commands = answers, commands
        self._number = 0
        self.events: list[dict[str, Any]] = []
        self._session: str | None = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result; events that come meanwhile are kept."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            command["sessionId"] = self._session
        self._commands.write(json.dumps(command).encode() + b"\0")
        self._commands.flush()
        while True:
            message = self._read()
            if message.get("id") == self._number:
                assert "error" not in message, message["error"]
                result: dict[str, Any] = message["result"]
                return result
            self.events.append(message)

    def _read(self) -> dict[str, Any]:
        data = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            assert byte, "chromium has ended"
            data += byte
        message: dict[str, Any] = json.loads(data)
        return message

    def open(self, page: Path) -> None:
        """Load a file and wait until it is complete."""
        self.events.clear()
        self.send("Page.navigate", url=page.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; promises are awaited."""
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def click(self, selector: str) -> None:
        """Click with the mouse on the middle of the first element of a selector, wherever it stands."""
        x, y = self.evaluate(
            f"(() => {{ const it = document.querySelector({json.dumps(selector)});"
            "it.scrollIntoView({block: 'center', inline: 'center'});"
            "const box = it.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        """Press and release a key, such as Enter or ArrowRight."""
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    @property
    def requests(self) -> list[str]:
        """The addresses that were asked for since the page was opened."""
        sent = [event for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    @property
    def complaints(self) -> list[str]:
        """What the browser wrote to its console since the page was opened."""
        kinds = {"Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"}
        return [json.dumps(event["params"]) for event in self.events if event["method"] in kinds]


@contextmanager
def open_browser(folder: Path) -> Iterator[Browser]:
    """Start Chromium with a profile in a folder, and end it with the block."""
    assert CHROMIUM is not None
    commands, answers = os.pipe(), os.pipe()

    def connect() -> None:
        # By way of high numbers, so that neither pipe is overwritten by the other.
        high = [os.dup2(end, 100 + place) for place, end in enumerate((commands[0], answers[1]))]
        os.dup2(high[0], _READS)
        os.dup2(high[1], _WRITES)

    process = subprocess.Popen(
        [
            CHROMIUM,
            *("--headless=new", "--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}"),
            *("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions"),
            *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(_READS, _WRITES),
        preexec_fn=connect,
    )
    os.close(commands[0])
    os.close(answers[1])
    try:
        with os.fdopen(answers[0], "rb") as reads, os.fdopen(commands[1], "wb") as writes:
            browser = Browser(reads, writes)
            yield browser
            browser.send("Browser.close")
    finally:
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
