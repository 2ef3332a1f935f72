"""Off-policy estimators, one a file, and the certificate. They never see how a policy was trained."""
