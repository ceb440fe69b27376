"""A virtual cluster with a virtual clock, under the same control plane: how we see many nodes from one machine."""
