"""The online half: decisions under a hard budget, their ledger, and the service that answers. No training framework."""
