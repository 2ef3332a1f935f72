"""The ledger: decisions and the money behind them, in one transaction."""
