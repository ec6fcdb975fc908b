"""Where the tool's own references are."""

# Not refs/bisector: each `git bisect start` and `reset` removes all references that begin with refs/bisect, whatever
# follows (bisect_clean_state() in git's bisect.c; tried with 2.39).
OURS = "refs/by-bisector"
