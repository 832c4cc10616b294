"""Steps: what the probe saw inside the server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One forward of the target and what belongs to it. Seconds are the device's own.

    A time is None where the stage did not run in this step, or was not told.
    """

    start_ns: int
    """From the cell's start, on the records' clock."""
    num_reqs: int
    """Requests in the step's batch."""
    num_tokens: int
    """Tokens scheduled: 1 + drafts for each request that decodes, prompt tokens for the others."""
    new_reqs: int
    """Requests whose prompt begins in this step."""
    verified: int
    """Requests whose drafts this step verifies: what the server counts as drafts."""
    depth: int
    """K; 0 without speculation."""
    forward_s: float | None
    """The target's forward."""
    sample_s: float | None
    """Sampling, or rejection sampling of the drafts."""
    draft_s: float | None
    """Drafting for the next step, K tokens for each request."""
    interval_s: float | None
    """From the start of the step before to the start of this one."""

    @property
    def decodes_only(self) -> bool:
        """No prompt token is in it: at most 1 + K tokens for each request."""
        return self.new_reqs == 0 and self.num_tokens <= self.num_reqs * (1 + self.depth)
