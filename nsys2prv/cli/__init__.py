"""The command line: it parses, calls one function, prints, and turns errors into exit codes."""
