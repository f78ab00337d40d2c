"""Every threshold of the remarks; those that figures themselves need are in `stages.metrics`."""

HARDLY_BETTER = 0.95
"""Share of the trigram's perplexity above which a model is hardly better than counting."""
FEW_UNITS = 20
"""Documents, or blocks, below which an interval is rough."""
UNEVEN = 1.25
"""Factor between perplexities of valid and test above which one is notably harder. Those of WikiText and Penn Treebank
lie within 1.05 of each other; splits of a few thousand tokens within this one, by chance."""
MANY_ENDS = 0.02
"""Share of tokens that end documents above which they lower a perplexity notably: of lines, which end with a line
break anyway, four in a hundred are worth a fifth of it."""
MANY_UNKNOWN = 0.01
"""Share of unknown tokens above which a perplexity means another thing than it seems to."""
NOTABLY_REPEATED = 0.05
"""Share of the scored tokens in paragraphs that were read before, from which on a title tells the gain on new text."""
NOTABLE_GAIN = 0.005
"""Share of perplexity that the last doubling of an amount must have gained for more of it to be worth its time."""
