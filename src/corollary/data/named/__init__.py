"""Readers of the named data sets, by kind; ``corollary.data.registry`` lists the sets themselves.

Each takes the members of its archive (nothing, if scikit-learn or networkx has the data) and returns
the fields of a :class:`corollary.data.Dataset` as a dictionary.
"""
