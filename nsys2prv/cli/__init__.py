"""The command line: one module per command. It parses, calls one function, prints, and turns errors into exit codes."""
