"""D-CAPE's experiments: real m-way joins with generations and clean-up, on virtual machines with little memory.

What is real: the tuples, the joins (`kernels.join`), the generations, the results that clean-up finds missing, and the
controller with its policies. What is virtual: the clock, and what joining, disk and network cost on it.
"""
