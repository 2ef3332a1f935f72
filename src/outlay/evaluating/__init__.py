"""Judging a policy: estimates, checks, the certificate, and the verdict."""
