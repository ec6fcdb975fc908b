"""The words of the field, errors, events and deadlines; imports no other room."""
