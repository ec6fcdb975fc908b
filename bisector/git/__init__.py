"""The repository, linked worktrees, git bisect and what git tells of commits; the only room that knows GitPython."""
