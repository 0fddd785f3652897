"""Something to look at. A view never computes a score."""
