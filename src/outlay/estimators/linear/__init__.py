"""The linear systems behind fitted and reweighted values: bases, cells of alike rows, regressions, recursions."""
