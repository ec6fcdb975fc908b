"""Letters to people: whom they are for, and the way to a mail server."""
