"""Policies of the weights of a row's memories, and the rules that say what each is valid for."""
