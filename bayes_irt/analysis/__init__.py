"""Questions asked of a posterior: pure functions that return labelled tables."""
