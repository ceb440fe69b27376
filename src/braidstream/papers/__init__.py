"""The papers' experiments: one module a paper, one function a figure, found by the registry. `braid paper` runs them."""
