"""Sampled counters of GPUs, networks, CPUs and plugins."""
