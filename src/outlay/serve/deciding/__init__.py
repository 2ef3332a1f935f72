"""From a request's features to a chosen action: encoding, the draw of a policy, the guards that need no ledger."""
