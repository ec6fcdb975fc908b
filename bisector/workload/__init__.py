"""What runs on the stack: fio jobs, their output, series of samples."""
