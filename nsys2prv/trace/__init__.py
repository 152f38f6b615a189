"""Translation: events of a run come in; the merged trace, its files and the account of every row leave."""
