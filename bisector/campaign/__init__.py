"""What searches, comparisons and single trials have in common: one loop over an executor."""
