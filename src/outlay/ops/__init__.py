"""Mathematics on arrays: pure functions."""
