"""What is decided: reports in, instructions out. Pure; imports neither Spark nor Arrow."""
