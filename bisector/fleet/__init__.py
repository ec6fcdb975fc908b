"""The machines that measure for one person: their configuration, connections, workers and jobs."""
