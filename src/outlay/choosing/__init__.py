"""Choosing policies: measure them, solve the weights of a mixture, and those of every other budget."""
