"""The model of the old policy, for logs that state no propensities, and the check whether it fits."""
