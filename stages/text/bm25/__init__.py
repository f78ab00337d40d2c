"""BM25 between segments of one text: every segment is a document, and the query for its own matches."""
