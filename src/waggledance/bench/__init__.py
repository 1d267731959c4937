"""Measurements: what the swarm and the round cost, beside others and beside their own floor."""
