"""The search: the next commit to try and the probability of each; pure functions of readings on a graph, with numpy."""
