"""`python -m nsys2prv`."""

from nsys2prv.cli import main

main()
