"""Messages in, answers out, in groups: the work between HTTP and the ledger."""
