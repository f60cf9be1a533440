"""A real browser that looks at one page: run as a program, so that no other test has its library in its process.

    python looking.py PAGE FOLDER < orders > answers

An order is a JSON object with a name, a width and a height, `dark` or not, and what to ask the page: a script, or keys
to press and a script to ask after each. Whatever the page says on its console is in the answers, and so is every
address it wanted. A screenshot per order is put into the folder.
"""

import json
import sys
from pathlib import Path
from typing import Any

from PyQt6.QtCore import QCoreApplication, QEvent, QEventLoop, Qt, QTimer, QUrl
from PyQt6.QtGui import QKeyEvent
from PyQt6.QtWebEngineCore import QWebEnginePage, QWebEngineProfile, QWebEngineUrlRequestInterceptor
from PyQt6.QtWebEngineWidgets import QWebEngineView
from PyQt6.QtWidgets import QApplication

KEYS = {"Tab": Qt.Key.Key_Tab, "Enter": Qt.Key.Key_Return, "Space": Qt.Key.Key_Space}
PATIENCE_MS = 30_000
SETTLE_MS = 250
KEPT: list[Any] = []


class Door(QWebEngineUrlRequestInterceptor):
    """Notes every address that is wanted."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted: list[str] = []

    def interceptRequest(self, info: Any) -> None:  # noqa: N802  (the library's name)
        self.wanted.append(info.requestUrl().toString()[:200])


class Page(QWebEnginePage):
    """Notes what is said on the console."""

    def __init__(self, profile: QWebEngineProfile) -> None:
        super().__init__(profile)
        self.said: list[str] = []

    def javaScriptConsoleMessage(self, level: Any, message: Any, line: Any, source: Any) -> None:  # noqa: N802
        self.said.append(f"{level.name}: {message} ({source}:{line})")


def waited(start: Any) -> Any:
    """Start something that calls back, and return what it calls back with."""
    loop, answers = QEventLoop(), []

    def done(answer: Any = None) -> None:
        answers.append(answer)
        loop.quit()

    QTimer.singleShot(PATIENCE_MS, loop.quit)
    start(done)
    if not answers:
        loop.exec()
    return answers[0]


def settled(milliseconds: int = SETTLE_MS) -> None:
    waited(lambda done: QTimer.singleShot(milliseconds, done))


def looked(file: Path, folder: Path, order: dict[str, Any]) -> dict[str, Any]:
    """Open the page, ask what is asked, press what is to be pressed, take a picture."""
    profile, door = QWebEngineProfile(), Door()
    profile.setUrlRequestInterceptor(door)
    page = Page(profile)
    view = QWebEngineView()
    view.setPage(page)
    view.resize(order["width"], order["height"])
    view.show()

    def load(done: Any) -> None:
        page.loadFinished.connect(done)
        page.load(QUrl.fromLocalFile(str(file)))

    assert waited(load), "the page does not load"
    settled()
    answer = waited(lambda done: page.runJavaScript(order.get("script", "null"), done))
    settled()
    after = []
    for key in order.get("keys", ()):
        target = view.focusProxy() or view
        for sort in (QEvent.Type.KeyPress, QEvent.Type.KeyRelease):
            text = {"Enter": "\r", "Space": " "}.get(key, "")
            QCoreApplication.postEvent(target, QKeyEvent(sort, KEYS[key], Qt.KeyboardModifier.NoModifier, text))
        settled(60)
        after.append(waited(lambda done: page.runJavaScript(order["after"], done)))
    settled()
    picture = folder / f"{order['name']}.png"
    assert view.grab().save(str(picture)), "no picture was taken"
    view.close()
    KEPT.extend((profile, page))  # a profile must outlive its pages
    return {"answer": answer, "after": after, "console": page.said, "wanted": door.wanted, "picture": str(picture)}


def main() -> None:
    """Look as often as is ordered."""
    app = QApplication(["looking"])
    file, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    answers = [looked(file, folder, order) for order in json.load(sys.stdin)]
    sys.stdout.write(json.dumps(answers))
    sys.stdout.flush()
    del app


if __name__ == "__main__":
    main()
