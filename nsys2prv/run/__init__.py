"""A run of several reports: opens them, resolves ranks and hosts, and makes the plan that all steps share."""
