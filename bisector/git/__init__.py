"""The repository, linked worktrees, git bisect and facts about commits; the only package that uses GitPython."""
