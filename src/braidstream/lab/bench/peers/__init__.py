"""`braid bench peers`: the same joins on other systems, each in an environment and a process of its own."""
