"""The HTTP interface: the ASGI application, its endpoints, and connections."""
