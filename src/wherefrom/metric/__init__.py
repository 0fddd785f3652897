"""How far an explanation can be trusted: one module per protocol, each measure a function over arrays."""
