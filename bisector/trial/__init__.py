"""The path of one commit on one host."""
