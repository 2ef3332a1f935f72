"""Off-policy estimators, one per file, and the certificate. They never see how a policy was trained."""
