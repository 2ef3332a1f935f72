"""Work on several machines, through Ray: shards of rows, and networks that many processes train together."""
