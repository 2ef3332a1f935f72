"""What a program that reasons in words can do with outlay: its tools, and how to use them."""
