"""A/B tests of budgeted policies: design, assignment, analysis."""
