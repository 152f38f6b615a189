"""Where the work runs: independent pieces of work come in; the same results, in the same order, leave."""
