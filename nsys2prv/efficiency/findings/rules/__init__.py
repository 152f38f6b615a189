"""The rules of findings, a module each: limits, words, what is measured, how it judges. `registry` lists them."""
