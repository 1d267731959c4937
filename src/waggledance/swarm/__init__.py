"""The others: how groups leave a node and how they arrive."""
