"""What a host's own bisector is asked over SSH, and its answer: a document, of one host or of all at the same time."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import TypeVar

from bisector.core import json_document
from bisector.core.errors import InfraError, UserError
from bisector.core.json_document import Document
from bisector.core.printable import clean
from bisector.fleet import versions
from bisector.fleet.extra import Source
from bisector.fleet.home import FleetHome
from bisector.fleet.hosts import Host, Hosts
from bisector.fleet.ssh import Answer, Remote, login

QUESTION_S = 60.0
Found = TypeVar("Found")


def told(
    remote: Remote, kind: type[Document], *words: str, stdin: str = "", deadline_s: float = QUESTION_S
) -> Document:
    """What ``bisector fleet on-host`` there answers to these words.

    Raises as :meth:`Remote.bisector` does, and :class:`UserError` for a bisector whose answer is another one's.
    """
    host = remote.host
    answer = remote.bisector("fleet", "on-host", *words, deadline_s=deadline_s, stdin=stdin)
    if answer.exit_status == 0:
        check_silent(host, answer)
        try:
            return json_document.parsed(answer.stdout, kind)
        except ValueError as error:
            raise UserError(
                f"{host.name} has another bisector, whose answer is another: {error}", _install(host)
            ) from error
    there = remote.bisector("--version", deadline_s=QUESTION_S)
    ours = f"bisector {versions.own().bisector}"
    if there.exit_status == 0 and there.stdout.strip() != ours:
        raise UserError(f"{host.name} has {clean(there.stdout.strip())}, and here is {ours}", _install(host))
    raise InfraError(
        f"{host.name}: {clean(answer.last_line)}", f"ssh {login(host)} {host.bisector} fleet on-host {words[0]}"
    )


def check_silent(host: Host, answer: Answer) -> None:
    """Raise :class:`UserError` for a shell that prints something of its own, which breaks scp and rsync, too."""
    first = answer.stdout.lstrip().partition("\n")[0]
    if "{" in answer.stdout and not first.startswith("{"):
        raise UserError(
            f"{host.name}: what its login shell prints stands before what was asked: {clean(first)!r}",
            f"let it print nothing without a terminal, [ -t 1 ] || return; then: ssh {login(host)} true",
        )


def _install(host: Host) -> str:
    return Source.known().install_there(login(host), "python3")


def of_each(
    home: FleetHome, listed: Hosts, question: Callable[[Remote], Found], done: Callable[[str], None]
) -> tuple[Found, ...]:
    """Ask all hosts at the same time; ``done`` gets the name of each that has answered. In the order of the file.

    Interrupted, it waits for none of them; what runs on a host ends by its own deadline there.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(max(1, len(listed.hosts)), thread_name_prefix="host") as pool:
        try:
            futures: dict[Future[Found], str] = {
                pool.submit(question, Remote(host, home, stop.is_set)): host.name for host in listed.hosts
            }
            for future in as_completed(futures):
                future.result()
                done(futures[future])
        except BaseException:
            stop.set()
            raise
    return tuple(future.result() for future in futures)
