"""The main job, for people who have just come: a real graph, from its files to a commit that outlives its writer."""
