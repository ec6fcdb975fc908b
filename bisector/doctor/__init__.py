"""What is checked of this machine before the first hour is spent."""
