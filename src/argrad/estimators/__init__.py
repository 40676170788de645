"""Gradient estimators, one a file; all with the contract of `base.Estimator`."""
