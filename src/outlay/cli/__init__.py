"""The command line: options in, jobs called, tables out."""
