"""Timeline: what the sources of all reports gave comes in; rows, one time axis, labels and sorted records leave."""
