"""How many slots of a product-key memory are read, and how evenly."""
