"""Clock synchronization: reports with times of different clocks enter, one placement per report on the common axis leaves."""
