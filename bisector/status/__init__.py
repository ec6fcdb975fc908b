"""How a bisection or a comparison stands, derived from its record: evidence, belief, and the views that are shown."""
