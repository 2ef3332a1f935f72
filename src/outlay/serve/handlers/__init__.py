"""The work between HTTP and the ledger: messages in, groups of them written, answers out."""
