"""The money of a campaign spread over its days."""
