"""Clock synchronization: reports with times of their own clocks enter, one placement per report on the common axis leaves."""
