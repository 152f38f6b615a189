"""`python -m nsys2prv`."""

from nsys2prv.cli.main import main

main()
