"""What is asked of this machine before the first hour is spent."""
