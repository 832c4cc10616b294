"""peagle-bench: how much faster does a target model serve with P-EAGLE, and why."""

__version__ = "0.1.0"
