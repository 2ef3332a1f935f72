"""A/B tests behind the server: the arms, what stands about them, the rehearsal."""
