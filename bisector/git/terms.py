"""The person's words for the two sides, as far as git can use them."""

import re

from bisector.core.errors import UserError
from bisector.core.verdict import Terms, Verdict

_SUBCOMMANDS = frozenset(
    ("help", "start", "skip", "next", "reset", "visualize", "view", "replay", "log", "run", "terms")
)


def check_terms(terms: Terms | None) -> None:
    """Raise :class:`UserError` for chosen words that ``git bisect --term-old --term-new`` does not take."""
    if terms is None:
        return
    for term, taken in ((terms.old, ("bad", "new")), (terms.new, ("good", "old"))):
        if not re.fullmatch(r"[^\W\d_][\w-]*", term):
            raise UserError(f"{term!r} cannot be a term", "use a word of letters, digits and hyphens")
        if term in _SUBCOMMANDS:
            raise UserError(f"{term!r} cannot be a term: it is a command of git bisect")
        if term in taken:
            raise UserError(f"{term!r} means the other end to git bisect", "swap the terms, or choose other words")
        if term == Verdict.WEAK:
            raise UserError(f"{term!r} cannot be a term: it is a verdict of its own")
    if terms.old == terms.new:
        raise UserError(f"both terms are {terms.old!r}")
