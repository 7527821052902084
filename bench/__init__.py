"""Speed and size, beside the raw limit and beside other engines in one run. Only ratios travel to another machine."""
