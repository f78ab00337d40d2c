"""Any encoder of the package transformers (BERT, MiniLM), as it was imported: keys of windows, and no softmax."""
