"""What the Makefile runs besides the package: set-up, rules of the repository, check of the documentation."""
