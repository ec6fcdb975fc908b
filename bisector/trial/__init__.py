"""The course of one trial on one host."""
