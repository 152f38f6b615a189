"""Sources: tables of one report come in; frames of intervals, marks or samples leave, one module per kind of activity.

`registry.SOURCES` lists them."""
