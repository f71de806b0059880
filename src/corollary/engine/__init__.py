"""One idea: everything that learns is a loop over a state that can be saved."""
