"""Reports as one web page: tables, figures drawn as SVG, lineage. Free of torch."""
