"""Timeline: events of the sources of all reports come in; rows, labels and events placed on one time axis leave."""
