"""Memory at test: readings composed of sources and readers, stored or searched neighbours, and
their grids.
"""
