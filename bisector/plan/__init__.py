"""What a bisection would take, from what earlier ones took."""
