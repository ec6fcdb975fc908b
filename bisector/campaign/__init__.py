"""The loop over an executor that searches, comparisons and single trials share."""
