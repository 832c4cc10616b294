"""Whether replies that were timed are also right: pass@1 of HumanEval, tested in a sandbox."""
