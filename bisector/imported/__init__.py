"""Records made by hand or elsewhere: their index and files to trials, and what their verdicts amount to."""
