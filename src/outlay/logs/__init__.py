"""Campaign logs: read, check, encode, link days into transitions."""
