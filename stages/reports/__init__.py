"""Reports for people: remarks on figures, tables, pages, comparison. Free of torch."""
