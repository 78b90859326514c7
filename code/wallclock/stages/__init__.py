"""The nine stages: plain registries, name → function. Stages never import each other."""
