"""Judge a checkpoint by its evaluations: which gates of the recipe hold, with the numbers."""
