"""Drawings of our own in a browser: each one file, with its CSS and JS as strings."""
