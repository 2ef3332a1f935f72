"""Choosing and judging policies: measure them, solve the mixture's weights, certify, and say what was found."""
