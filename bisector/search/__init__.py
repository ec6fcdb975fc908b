"""Which commit next, and what is believed: pure functions of readings on a graph; numpy alone."""
