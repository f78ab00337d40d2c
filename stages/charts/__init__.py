"""Charts, each made in one place, for reports and for pages."""
