"""The paper's figures, and the means to produce ours beside them."""
