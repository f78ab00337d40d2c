"""What memory gives at test: readings composed of sources and readers, neighbours stored or searched, their grids."""
