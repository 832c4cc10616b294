"""What runs inside the sandbox: the standard library alone, nothing else of peagle_bench."""
