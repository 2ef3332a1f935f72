"""From a request's features to an action: features, the draw of a policy, the guards that need no ledger."""
