"""What people read: progress, table, status."""
