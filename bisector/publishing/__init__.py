"""From the record, and the files beside it, to a report, plots, a page, and a letter that is sent once."""
