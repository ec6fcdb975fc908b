"""Letters: whom they are for, the drafts, the way to a mail server, and what was sent."""
