"""Which part of a run matters: its iterations, its steady part, start-up and shut-down."""
