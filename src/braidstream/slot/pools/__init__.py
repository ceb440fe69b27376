"""What a join of a slot reads: the rows of its groups, of its cells of heavy keys, of its biclique units."""
