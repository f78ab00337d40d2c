"""Charts, for reports and for pages."""
