"""Every chart, once: for reports and for pages."""
