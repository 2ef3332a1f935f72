"""The nouns that every room shares."""
