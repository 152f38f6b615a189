"""Random damage, campaign by campaign, against one oracle: `make fuzz` for hours, a few inputs of each in `make test`."""
