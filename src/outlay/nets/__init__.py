"""Networks, batches and the compiled training loop."""
