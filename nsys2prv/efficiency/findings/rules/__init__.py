"""The rules of findings, a module each: thresholds, words, what is measured, how it judges. `registry` lists them."""
