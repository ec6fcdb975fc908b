"""The plan: what a bisection would take, from what earlier ones took."""
