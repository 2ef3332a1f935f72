"""The closed days of a ledger, as the next campaign's log."""
