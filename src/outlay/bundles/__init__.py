"""Bundles: what is served. A manifest, ONNX graphs and a vocabulary; written once, verified at every load."""
