"""Meters: each is fed chunk by chunk with the intervals of a run and fills one group of result tables."""
