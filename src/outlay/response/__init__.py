"""Predict, then optimise: response models and allocation."""
