"""Findings: typical causes of lost time in a run, with their numbers, where to look, and what people do about them.

The tables of a run and what was measured of it enter; rows of the tables `findings`, `finding_devices`, `finding_numbers` and
`finding_checks` leave."""
