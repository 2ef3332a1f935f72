"""A user's day: which row of the log it is, and what the policy sees of it later."""
