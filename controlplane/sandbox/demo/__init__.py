"""The demo: objects that people and their programs would create on a cluster. Nothing else."""
