"""What runs inside the server: times of drafting, the target's forward and sampling, per step.

Loaded by vLLM itself, so nothing here imports the rest of the package, or anything heavy.
"""
