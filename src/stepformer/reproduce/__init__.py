"""The paper's tables and figures: runs (one training or one fit), their scores, and tables made of them."""
