"""Programs on real parts whose answers are known: the demonstration, recorded articles, drawn histories."""
