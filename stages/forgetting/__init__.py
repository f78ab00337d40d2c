"""Traces of a document in a store: the artifacts that hold it, its copies in other documents, and
receipts of forgetting.
"""
