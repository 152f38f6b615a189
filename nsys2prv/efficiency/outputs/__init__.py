"""Outputs of a measurement: text, JSON, CSV, TALP, page."""
