"""What people read: progress, tables, reports and plots."""
