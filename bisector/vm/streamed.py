"""The output of a command in a guest, as it comes."""

import codecs
import re
from collections.abc import Callable

_LONGEST_LINE = 65536


class StreamedText:
    """A stream of bytes as text, all of it at the end and line by line meanwhile."""

    def __init__(self, on_line: Callable[[str], None] | None = None) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._on_line = on_line
        self._all: list[str] = []
        self._begun = ""
        self.read_bytes = 0

    def feed(self, data: bytes, final: bool = False) -> None:
        """Take the next piece; ``final`` is the last one."""
        self.read_bytes += len(data)
        text = self._decoder.decode(data, final)
        self._all.append(text)
        if self._on_line is not None:
            first, *others = re.split(r"\r\n|\r|\n", text)
            *lines, self._begun = self._begun + first, *others
            if len(self._begun) > _LONGEST_LINE:
                lines.append(self._begun)
                self._begun = ""
            for line in lines:
                self._on_line(line)

    def end(self) -> str:
        """Everything there was; a last line without an end is handed over too."""
        self.feed(b"", final=True)
        if self._on_line is not None and self._begun:
            self._on_line(self._begun)
        return "".join(self._all)
