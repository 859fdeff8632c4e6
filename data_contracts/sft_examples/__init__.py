"""Token rows with the mask of what is trained on."""
