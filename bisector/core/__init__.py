"""The words of the field, errors, events and deadlines; imports nothing of ours."""
