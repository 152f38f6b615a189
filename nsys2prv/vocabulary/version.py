"""The version of nsys2prv, which outputs name as the program that wrote them."""

__version__ = "1.0.0"
