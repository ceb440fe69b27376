"""What is computed: pure functions over Arrow and NumPy. Imports neither Spark nor the control plane."""
