"""The Python API: one file a verb, wiring the rooms below."""
