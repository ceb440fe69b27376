"""The papers' experiments, for `braid paper`: one module a paper, one function a figure, found by the registry."""
