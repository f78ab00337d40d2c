"""Making indexes of keys, and searching them for neighbours."""
