"""How a bisection stands, derived from its record: evidence, belief, and the view that tables and scripts show."""
