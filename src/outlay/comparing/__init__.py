"""Methods side by side at equal spend: who takes part, what each is measured by, and what the comparison finds."""
