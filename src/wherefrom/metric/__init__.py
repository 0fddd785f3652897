"""How far an explanation can be trusted: one module per protocol, each metric a function over arrays."""
