"""The documentation's site: pages made from code, and the build that checks all links."""
