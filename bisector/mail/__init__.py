"""Letters: their recipients, drafts of them, the way to a mail server, and what was sent."""
