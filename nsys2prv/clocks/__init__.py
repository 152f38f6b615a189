"""How clocks of hosts are tied together: reports in session time come in, one placement per report leaves."""
