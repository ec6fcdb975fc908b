"""The vocabulary of the project, errors, events and deadlines; imports no other room."""
