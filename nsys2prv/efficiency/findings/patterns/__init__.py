"""Typical patterns in which a run loses time. A rule looks for each: a module with its thresholds, words, measurements and
judgement. `rule_registry` lists them.
"""
