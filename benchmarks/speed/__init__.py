"""Speed and memory, measured in turn with other libraries on the same work: ``python -m benchmarks.speed``.

Every side of a comparison is a process of its own that waits while the others work, so that they take turns step by
step (A B A B ...) under the same load of the machine, and each has its own peak memory. The rate of a plain matrix
product is measured in the same turns.
"""
