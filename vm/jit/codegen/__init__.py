"""Generation of Python source text from analysed functions."""
