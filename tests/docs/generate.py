"""The parts of README and docs/ that are made from the code's own tables, or copied from one place.

``make docs`` writes them into their pages, each between a comment that names it and ``<!-- end -->``, and the JSON
schemas into docs/schema/; ``test_generated.py`` fails when one of them is not what the code says.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby
from pathlib import Path

from bisector import cli
from bisector.commands import catalogue
from bisector.config import options
from bisector.config.option_table import rows as settings_rows
from bisector.core import metric, resources
from bisector.core.setting import Option
from tests.docs import json_schema

DOCS = resources.ROOT / "docs"
README = resources.ROOT / "README.md"
SCHEMAS = DOCS / "schema"
# The table of one run of the demonstration, as it was printed.
DEMONSTRATION = Path(__file__).with_name("demonstration.txt")
_PLACE = re.compile(r"(<!-- generated: ([a-z -]+) -->\n).*?(<!-- end -->)", re.DOTALL)
# The page that is about a command, where that is not this one.
_PAGES = {
    "start": "tutorial",
    "resume": "tutorial",
    "next-step": "tutorial",
    "status": "json",
    "report": "report",
    "plot": "report",
    "baselines": "report",
    "mail": "mail",
    "import": "import",
    "nightly": "nightly",
    "history": "nightly",
    "compare": "compare",
    "plan": "plan",
    "simulate": "plan",
    "kernel": "kernels",
    "doctor": "setup",
    "fleet": "fleet",
    "worker": "fleet",
    "image": "setup",
    "settings": "settings",
    **dict.fromkeys(("runs", "table", "log", "test", "cache", "reset"), "commands"),
}


def _commands() -> Iterator[str]:
    for title, entries in catalogue.GROUPS.items():
        yield from ("", f"**{title[0].upper()}{title[1:]}**", "")
        pages = {one.name: f"[{page}]({page}.md)" for one in entries if (page := _PAGES.get(one.name))}
        rows = ((f"`bisector {one.name}`", catalogue.sentence(one.name), pages.get(one.name, "")) for one in entries)
        yield from _table(("command", "", "page"), rows)


def _exit_codes() -> Iterator[str]:
    return _table(("code", ""), ((str(code), meaning) for code, meaning in cli.EXIT_CODES.items()))


def _settings() -> Iterator[str]:
    for table, rows in groupby(settings_rows(["NAME"]), lambda option: option.key.partition(".")[0]):
        yield from ("", f"### {table}", "")
        yield from _table(("setting", "flag", "default", "meaning"), map(_setting, rows))


def _setting(option: Option) -> tuple[str, str, str, str]:
    flag = option.flag if option.const and not option.short else f"{option.flag} {option.metavar}"
    flags = [f"`{one}`" for one in (flag, option.short) if option.flag and one]
    quick, article = (f"`{options.shown(option.in_profile(profile))}`" for profile in ("quick", "article"))
    default = quick if quick == article else f"{quick}; article: {article}"
    return f"`{option.key}`", ", ".join(flags), default, f"{option.help}. Value: {option.expected}."


def _metrics() -> Iterator[str]:
    rows = (
        (f"`{one.name}`", str(one.unit), str(one.better or ""), "yes" if one.live else "", one.sentence)
        for one in metric.table()
    )
    return _table(("metric", "unit", "better", "live", "what it is"), rows)


def _documents() -> Iterator[str]:
    files = {name: json_schema.file_name(name) for name in json_schema.DOCUMENTS}
    rows = ((f"`{json_schema.command(name)}`", f"[{file}](schema/{file})") for name, file in files.items())
    return _table(("command", "schema"), rows)


def _demonstration(*wanted: str) -> Iterator[str]:
    """Some of the table, by their first words: rows by their number; "…" stands for what is left out between them."""
    entries = re.split(r"\n(?! {4})", DEMONSTRATION.read_text(encoding="utf-8").rstrip())
    yield "```"
    last = None
    for place, entry in enumerate(entries):
        if entry and entry.split()[0] in wanted:
            yield from (" …",) if last is not None and place > last + 1 else ()
            yield entry
            last = place
    yield "```"


def _against_git() -> Iterator[str]:
    """What docs/plan.md shows of both strategies; its commands are run by a test."""
    shown = re.findall(
        r"by (\w+) among ([\d,]+) commits.*?answer ([\d.]+)% right, ([\d.]+)% claimed.*?evaluations +([\d.]+),"
        r".*?VM time +([\d.]+) h",
        (DOCS / "plan.md").read_text(encoding="utf-8"),
        re.DOTALL,
    )
    names = {"git": "`git bisect`", "bayes": "bisector"}
    rows = (
        (names[name], f"{right} %", f"{claimed} %", trials, hours)
        for name, _, right, claimed, trials, hours in sorted(shown, reverse=True)
    )
    yield from _table((f"{shown[0][1]} commits", "right", "claimed", "trials", "hours"), rows)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    for row in (head, tuple("---" for _ in head), *rows):
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


PARTS: Mapping[str, Callable[[], Iterator[str]]] = {
    "commands": _commands,
    "exit codes": _exit_codes,
    "settings": _settings,
    "metrics": _metrics,
    "json documents": _documents,
    "demonstration": partial(_demonstration, "n", "1", "2", "10", "13", "answer"),
    "demonstration ends": partial(_demonstration, "n", "1", "2", "threshold"),
    "demonstration trials": partial(_demonstration, "n", "3", "4"),
    "demonstration answer": partial(_demonstration, "n", "9", "10", "13", "evaluations", "search", "answer"),
    "against git": _against_git,
}


def parts(page: str) -> tuple[str, ...]:
    """The names of the parts that a page has places for."""
    return tuple(name for _, name, _ in _PLACE.findall(page))


def generated(page: str) -> str:
    """The page with its generated parts as the code has them now."""
    return _PLACE.sub(lambda found: f"{found[1]}{_text(PARTS[found[2]]())}{found[3]}", page)


def without_parts(page: str) -> str:
    """The page as a person wrote it."""
    return _PLACE.sub("", page)


def _text(lines: Iterable[str]) -> str:
    return "\n" + "\n".join(lines).strip("\n") + "\n\n"


def pages() -> tuple[Path, ...]:
    """README, and every page of docs/."""
    return (README, *sorted(DOCS.glob("*.md")))


def schemas() -> Mapping[Path, str]:
    """The schema of each document, by its file."""
    return {SCHEMAS / json_schema.file_name(name): json_schema.text(name) for name in json_schema.DOCUMENTS}


def main() -> None:
    """Write every page and every schema that is not what the code says; remove schemas of no document."""
    wanted = {**{path: generated(path.read_text(encoding="utf-8")) for path in pages()}, **schemas()}
    for path in {*SCHEMAS.glob("*.json")} - wanted.keys():
        path.unlink()
    for path, text in wanted.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            sys.stdout.write(f"{path.relative_to(resources.ROOT)}\n")


if __name__ == "__main__":
    main()
