"""Campaigns whose truth is known, to rehearse on and to test against."""
