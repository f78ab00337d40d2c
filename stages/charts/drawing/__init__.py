"""Figures as SVG whose colours follow the page: light, dark or printed."""
