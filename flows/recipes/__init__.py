"""Recipes and profiles, a folder a flow: `recipe.yaml` is the built-in recipe, the others are profiles."""
