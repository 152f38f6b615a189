"""What a trace can contain (event types, values, states), names of calls, kernel families; and the version."""

__version__ = "1.0.0"
