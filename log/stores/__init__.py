"""Object stores of clusters: the contract (``store``), and one module for each kind."""
