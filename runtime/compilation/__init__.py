"""From a loop's file to a program: compiled, cached, checked, described, laid out."""
